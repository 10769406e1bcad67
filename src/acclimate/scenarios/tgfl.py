"""Test-time generalised and personalised federated learning: BTFL's benchmark of five test distributions per client."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from acclimate.data import partition, sources
from acclimate.options import Count, Positive
from acclimate.scenarios.population import CLEAN, Blend, Holding, Plan, Scenario, StreamPlan
from acclimate.scenarios.shifts import any_common


@dataclass(frozen=True)
class TGFL(Scenario):
    """20 clients that train and are tested (60/20/20, a fixed split), each on five streams.

    `ind`: its own test images; `ind-shifted`: those corrupted; `exd`: as many from other clients' test images;
    `exd-shifted`: those corrupted; `mix`: equal parts of the four, shuffled. With `natural: cifar10.1` half of each
    shifted stream is CIFAR-10.1, dealt by the clients' label histograms; without it (the default, as it is not always
    at hand) they are corrupted images only. Corruption: one of 15 per image, severity 5. `most` takes
    so many images in all.
    """

    data: str = "cifar10"
    clients: Count = 20
    alpha: Positive = 0.1
    severity: Count = 5
    natural: str | None = None
    most: Count | None = None

    def plan(self, seed: int) -> Plan:
        dataset, rng = sources.load(self.data), np.random.default_rng([seed, 7])
        split = dataset.columns.get("split", np.zeros(len(dataset.labels)))
        pool = np.flatnonzero(split == 0)
        if self.most is not None:
            pool = rng.choice(pool, min(self.most, len(pool)), replace=False)
        extra: list[partition.Rows] = [pool[:0]] * self.clients
        if self.natural is not None:
            dataset = sources.combine((self.data, self.natural), dataset.images.shape[1], dataset.images.shape[0])
        parts = partition.balanced_dirichlet(dataset.labels, pool, self.clients, dataset.classes, self.alpha, rng)
        if self.natural is not None:
            second = np.flatnonzero(dataset.columns["domain"] == 1)
            extra = partition.alike(dataset.labels, second, parts, dataset.classes, rng)
        source, tests = {}, []
        for client, rows in enumerate(parts):
            train, check, test = np.split(rows, [round(0.6 * len(rows)), round(0.8 * len(rows))])
            source[client] = (Holding(train), Holding(check))
            tests.append(test)
        streams = [s for k in range(self.clients) for s in self._streams(k, tests, extra, rng)]
        return Plan(dataset, source, streams)

    def _streams(
        self, client: int, tests: list[partition.Rows], extra: list[partition.Rows], rng: np.random.Generator
    ) -> list[StreamPlan]:
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
        quarter = max(1, min(len(own), len(away)) // 4)
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
