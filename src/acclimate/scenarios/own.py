"""Your own data: a folder per client, or a CSV of path, client and label."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from acclimate.data import own, partition
from acclimate.errors import ConfigError, nearest
from acclimate.options import Count, Share
from acclimate.scenarios.population import Holding, Plan, Scenario, StreamPlan


@dataclass(frozen=True)
class Own(Scenario):
    """Clients with labels train; those in `test` (by default a fifth of them, drawn by the seed) and those without
    labels are new. What has no label is adapted to and predicted, but not scored.
    """  # noqa: D205

    folder: str | None = None  # <folder>/<client>/<class>/*.png, or <folder>/<client>/*.png without labels
    csv: str | None = None  # a file with the columns path, client and label
    size: Count | None = None
    test: tuple[str, ...] = ()
    new: Share = 0.2
    validation: Share = 0.2

    def plan(self, seed: int) -> Plan:
        if (self.folder is None) == (self.csv is None):
            raise ConfigError(["expected one of folder and csv"], "scenario 'own'")
        if self.folder is not None:
            dataset = own.folder_per_client(Path(self.folder), self.size)
        else:
            dataset = own.csv_of(Path(str(self.csv)), self.size)
        names, rng = dataset.names["client"], np.random.default_rng([seed, 12])
        unknown = [f"test: unknown client '{name}'; {nearest(name, names)}" for name in self.test if name not in names]
        if unknown:
            raise ConfigError(unknown, "scenario 'own'")
        held = partition.by_column(dataset.columns["client"], np.arange(len(dataset.labels)))
        labelled = [client for client, rows in held.items() if (dataset.labels[rows] >= 0).all()]
        if self.test:
            tested = {names.index(name) for name in self.test}
        else:
            tested = set(rng.permutation(labelled)[: round(self.new * len(labelled))].tolist())
        tested |= set(held) - set(labelled)
        source, streams = {}, []
        for client, rows in held.items():
            if client in tested:
                streams.append(StreamPlan(client, "test", [Holding(rows)]))
            else:
                train, check = partition.cut(rng.permutation(rows), self.validation)
                if len(train) < 2:
                    raise ConfigError(
                        [f"client '{names[client]}' has {len(rows)} labelled images, too few to train on; give it "
                         "more, or name it in test"], "scenario 'own'",
                    )  # fmt: skip
                source[client] = (Holding(train), Holding(check))
        if not source or not streams:
            found = f"{len(source)} clients to train and {len(streams)} to test"
            raise ConfigError([f"{found}; give some clients labels and name others in test"], "scenario 'own'")
        return Plan(dataset, source, streams)
