"""Test-time generalised and personalised federated learning: BTFL's benchmark of five test distributions per client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from acclimate.data import partition, sources
from acclimate.data.augment import Crops
from acclimate.data.dataset import Dataset
from acclimate.data.partition import Rows
from acclimate.data.twins import twins
from acclimate.errors import ConfigError, nearest
from acclimate.options import Count, Positive
from acclimate.scenarios.population import CLEAN, Blend, Holding, Plan, Scenario, StreamPlan
from acclimate.scenarios.shifts import any_common


@dataclass(frozen=True)
class TGFL(Scenario):
    """20 clients that train and are tested (60/20/20, a fixed split), each on five streams.

    `ind`: its own test images; `ind-shifted`: those corrupted; `exd`: as many from other clients' test images;
    `exd-shifted`: those corrupted; `mix`: equal parts of the four, shuffled. Corruption: one of 15 per image, severity
    5. With `natural` half of each shifted stream is natural shift, dealt by the clients' label histograms: another
    data set of the same classes (`cifar10.1` for CIFAR-10), or a domain of this one, which nobody trains on (`webcam`
    of `office-caltech10`; the paper leaves out one of `office-home`). Without it, and a remark says so, shifted streams
    are corrupted images only. The paper has 10 clients on Office-Home and ImageNet. `augment` lets clients train on
    images that are moved and mirrored at random, as those of the released code do.
    """

    data: str = "cifar10"
    clients: Count = 20
    alpha: Positive = 0.1
    severity: Count = 5
    natural: str | None = None
    size: Count | None = None
    most: Count | None = None  # images in all, drawn from the training set
    augment: Crops | None = None

    def plan(self, seed: int) -> Plan:
        dataset, rng = sources.load(self.data, self.size), np.random.default_rng([seed, 7])
        if self.clients < 2:
            raise ConfigError(
                ["clients: expected at least 2, since each also meets the others' images; found 1"], "tgfl"
            )
        pool = np.flatnonzero(dataset.columns.get("split", np.zeros(len(dataset.labels))) == 0)
        pool = pool[np.sort(np.unique(twins(dataset)[pool], return_index=True)[1])]  # one of each where some are equal
        if self.most is not None:
            pool = rng.choice(pool, min(self.most, len(pool)), replace=False)
        dataset, pool, other = self._natural(dataset, pool)
        parts = partition.balanced_dirichlet(dataset.labels, pool, self.clients, dataset.classes, self.alpha, rng)
        extra = [other] * self.clients
        if len(other):
            extra = partition.alike(dataset.labels, other, parts, dataset.classes, rng)
        source, tests = {}, []
        for client, rows in enumerate(parts):
            train, check, test = np.split(rows, [round(0.6 * len(rows)), round(0.8 * len(rows))])
            source[client] = (Holding(train), Holding(check))
            tests.append(test)
        streams = [s for k in range(self.clients) for s in self._streams(k, tests, extra, rng)]
        remarks = [] if len(other) else ["shifted streams are corrupted images only; the benchmark's are half natural"]
        return Plan(dataset, source, streams, remarks=remarks, augment=self.augment)

    def _natural(self, dataset: Dataset, pool: Rows) -> tuple[Dataset, Rows, Rows]:
        """The data set with the natural shift in it, what clients share, and the images of the natural shift."""
        domains = dataset.names.get("domain", ())
        if self.natural is None:
            return dataset, pool, pool[:0]
        if self.natural in domains:
            away = dataset.columns["domain"][pool] == domains.index(self.natural)
            return dataset, pool[~away], pool[away]
        if self.natural not in sources.SOURCES:
            hint = nearest(self.natural, [*domains, *sources.SOURCES])
            raise ConfigError(
                [f"natural: '{self.natural}' is neither a domain of {self.data} nor a data set; {hint}"], "tgfl"
            )
        channels, height, _ = dataset.images.shape
        both = sources.combine((self.data, self.natural), height, channels)
        return both, pool, np.flatnonzero(both.columns["domain"] == 1)

    def _streams(self, client: int, tests: list[Rows], extra: list[Rows], rng: np.random.Generator) -> list[StreamPlan]:
        worn, own = any_common(self.severity), tests[client]
        others = np.concatenate([rows for k, rows in enumerate(tests) if k != client])
        away = rng.choice(others, min(len(others), len(own)), replace=False)
        natural = np.concatenate([rows for k, rows in enumerate(extra) if k != client])
        four = {
            "ind": [Holding(own, CLEAN)],
            "ind-shifted": _halves(Holding(own, worn), Holding(extra[client], CLEAN)),
            "exd": [Holding(away, CLEAN)],
            "exd-shifted": _halves(Holding(away, worn), Holding(rng.permutation(natural), CLEAN)),
        }
        quarter = min(sum(len(part.rows) for part in parts) for parts in four.values()) // 4
        mix = [Holding(p.rows[: max(1, quarter // len(parts))], p.shift) for parts in four.values() for p in parts]
        return [
            StreamPlan(client, name, parts if len(parts) == 1 else [_blend(parts, name, rng)])
            for name, parts in {**four, "mix": mix}.items()
        ]


def _blend(parts: list[Holding], name: str, rng: np.random.Generator) -> Blend:
    return Blend(parts, rng.permutation(sum(len(part.rows) for part in parts)), f"{name}, shuffled")


def _halves(corrupted: Holding, natural: Holding) -> list[Holding]:
    """As many of each, where there is natural shift."""
    if not len(natural.rows):
        return [corrupted]
    size = min(len(corrupted.rows), len(natural.rows))
    return [Holding(corrupted.rows[:size], corrupted.shift), Holding(natural.rows[:size], natural.shift)]
