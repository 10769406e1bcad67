"""A test written by hand: a table of clients x time, readable as it stands in the experiment file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from acclimate.data import partition, sources
from acclimate.errors import ConfigError
from acclimate.options import Count, Share
from acclimate.scenarios.population import Holding, Plan, Scenario, StreamPlan
from acclimate.scenarios.shifts import parse_shift


@dataclass(frozen=True)
class Timetable(Scenario):
    """Who meets what when. Each entry is one segment of `per_segment` images; `x 3` repeats it.

    ```yaml
    scenario:
      name: timetable
      data: cifar10
      table:
        "0-4": [clean, fog 5 x 2, snow 3]
        "5": [rotation 30, fog 5 + rotation 30, clean]
    ```

    The numbers on the left are test clients. Source clients share the training set, or `most` images of it, evenly.
    """

    data: str = "digits"
    table: Mapping[str | int, tuple[str, ...]] = field(default_factory=lambda: {"0-3": ("clean", "rotation 20 x 2")})
    per_segment: Count = 20
    source_clients: Count = 10
    test: Share = 0.4  # of the images, where the data set has no test part of its own
    validation: Share = 0.2
    size: Count | None = None  # of the images; by default their own
    most: Count | None = None

    def plan(self, seed: int) -> Plan:
        dataset, rng = sources.load(self.data, self.size), np.random.default_rng([seed, 11])
        everything = rng.permutation(len(dataset.labels))
        if "split" in dataset.columns:
            split = dataset.column("split")[everything]
            train, tests = everything[split == 0], everything[split == 1]
        else:
            train, tests = partition.cut(everything, self.test)
        source = {}
        for client, rows in enumerate(partition.iid(train[: self.most], self.source_clients, rng)):
            own, check = partition.cut(rows, self.validation)
            source[client] = (Holding(own), Holding(check))
        streams = []
        for client, words in sorted(_rows(self.table).items()):
            needed = len(words) * self.per_segment
            if needed > len(tests):
                raise ConfigError([f"table: client {client} needs {needed} images, {len(tests)} there"], "timetable")
            pieces = np.split(rng.choice(tests, needed, replace=False), len(words))
            segments = [Holding(rows, parse_shift(text)) for rows, text in zip(pieces, words, strict=True)]
            streams.append(StreamPlan(self.source_clients + client, "test", segments))
        return Plan(dataset, source, streams)


def _rows(table: Mapping[str | int, tuple[str, ...]]) -> dict[int, list[str]]:
    """The table with one row per client and one entry per segment."""
    rows: dict[int, list[str]] = {}
    for clients, entries in table.items():
        found = re.fullmatch(r"(\d+)(?:-(\d+))?", str(clients).strip())
        if not found:
            raise ConfigError([f"table: expected clients such as '3' or '0-4'; found '{clients}'"], "timetable")
        words = [word for entry in entries for word in _repeated(entry)]
        for client in range(int(found[1]), int(found[2] or found[1]) + 1):
            if client in rows:
                raise ConfigError([f"table: client {client} is there twice"], "timetable")
            rows[client] = words
    return rows


def _repeated(entry: str) -> list[str]:
    found = re.fullmatch(r"(.*\S)\s+x\s*(\d+)", entry)
    return [found[1]] * int(found[2]) if found else [entry]
