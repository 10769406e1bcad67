"""Test-time shift on the clients that trained: covariate, attribute and domain shift (FedICON)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from acclimate.data import partition, sources
from acclimate.errors import ConfigError, nearest
from acclimate.options import Count, Positive, Share
from acclimate.scenarios.population import CLEAN, Holding, Plan, Scenario, StreamPlan
from acclimate.scenarios.shifts import any_common
from acclimate.scenarios.ttpfl import DIGITS


@dataclass(frozen=True)
class DomainShift(Scenario):
    """One domain per client. `covariate`: tested on its own domain, clean and corrupted; `domain`: all but one train,
    and every one of them is tested on the domain left out.
    """  # noqa: D205

    data: Literal["digits-5", "office-caltech10", "pacs"] = "office-caltech10"
    shift: Literal["covariate", "domain"] = "covariate"
    target: str | None = None  # of `domain`
    domains: tuple[str, ...] = DIGITS  # of digits-5
    size: Count = 32
    most: Count = 7438  # images per domain
    severity: Count = 5
    test: Share = 0.2
    validation: Share = 0.1

    def plan(self, seed: int) -> Plan:
        digits = self.data == "digits-5"
        dataset = sources.combine(self.domains, self.size, 3) if digits else sources.load(self.data, self.size)
        rng, names = np.random.default_rng([seed, 8]), dataset.names["domain"]
        by_domain = partition.by_column(dataset.columns["domain"], np.arange(len(dataset.labels)))
        rows = {domain: rng.permutation(held)[: self.most] for domain, held in by_domain.items()}
        if self.shift == "domain" and self.target not in names:
            raise ConfigError(
                [f"target: unknown domain '{self.target}'; {nearest(self.target, names)}"], "domain-shift"
            )
        source, streams = {}, []
        for domain, held in rows.items():
            if self.shift == "domain" and names[domain] == self.target:
                continue
            rest, own = partition.cut(held, self.test)
            train, check = partition.cut(rest, self.validation)
            source[domain] = (Holding(train), Holding(check))
            if self.shift == "domain":
                away = rows[names.index(str(self.target))]
                streams.append(StreamPlan(domain, "target", [Holding(away)]))
            else:
                streams.append(StreamPlan(domain, "original", [Holding(own)]))
                streams.append(StreamPlan(domain, "corrupted", [Holding(own, any_common(self.severity))]))
        return Plan(dataset, source, streams, groups={domain: names[domain] for domain in source})


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
