"""Attribute shift on the clients that trained: tested on images of their classes collected later (FedICON)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from acclimate.data import partition, sources
from acclimate.options import Count, Positive, Share
from acclimate.scenarios.population import CLEAN, Holding, Plan, Scenario, StreamPlan


@dataclass(frozen=True)
class AttributeShift(Scenario):
    """CIFAR-10 to CIFAR-10.1: 20 clients by Dir(alpha), tested on both, labels following each client's histogram."""

    data: str = "cifar10"
    other: str = "cifar10.1"
    clients: Count = 20
    alpha: Positive = 0.1
    validation: Share = 0.1

    def plan(self, seed: int) -> Plan:
        first = sources.load(self.data)
        channels, height, _ = first.images.shape
        dataset, rng = sources.combine((self.data, self.other), height, channels), np.random.default_rng([seed, 9])
        split = first.columns["split"]
        parts = partition.dirichlet(
            dataset.labels, np.flatnonzero(split == 0), self.clients, dataset.classes, self.alpha, rng, least=10
        )
        original = partition.alike(dataset.labels, np.flatnonzero(split == 1), parts, dataset.classes, rng)
        second = np.flatnonzero(dataset.columns["domain"] == 1)
        moved = partition.alike(dataset.labels, second, parts, dataset.classes, rng)
        source, streams = {}, []
        for client, rows in enumerate(parts):
            train, check = partition.cut(rows, self.validation)
            source[client] = (Holding(train), Holding(check))
            streams += [
                StreamPlan(client, name, [Holding(tests[client], CLEAN)])
                for name, tests in (("original", original), ("attribute", moved))
                if len(tests[client])
            ]
        return Plan(dataset, source, streams)
