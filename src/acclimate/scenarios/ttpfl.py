"""Test-time personalised federated learning: the protocol of ATP (Bao et al., NeurIPS 2023, appendix C.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from acclimate.data import partition, sources
from acclimate.data.corruptions import EXTRA, KINDS, Corruption
from acclimate.data.image_shifts import Clean, Shift
from acclimate.errors import ConfigError, nearest
from acclimate.options import Count, Share
from acclimate.scenarios.population import Holding, Plan, Scenario, StreamPlan


@dataclass(frozen=True)
class TTPFL(Scenario):
    """300 clients of 200 images, 240 of which train (160/40); the other 60 are new.

    Feature shift: one corruption and severity (1 to 5) per client, 15 kinds for source clients and 4 others for new
    ones. Label shift: step partition, two classes with 80 images and the others with 5 (CIFAR-100: 51 and 1).
    Hybrid: both. `step: pairs` is the authors' code, `strict` the paper's text.
    """

    data: str = "cifar10"
    shift: Literal["feature", "label", "hybrid"] = "hybrid"
    clients: Count = 300
    source_clients: Count = 240
    per_client: Count = 200
    major: Count = 80
    minor: Count = 5
    step: Literal["pairs", "strict"] = "pairs"
    validation: Share = 0.2

    def plan(self, seed: int) -> Plan:
        if self.source_clients >= self.clients:
            raise ConfigError(
                [f"source_clients: {self.source_clients} of {self.clients} clients leave no new ones"], "ttpfl"
            )
        dataset, rng = sources.load(self.data), np.random.default_rng([seed, 2])
        if self.shift == "feature":
            counts = partition.even_counts(self.clients, dataset.classes, self.per_client)
        else:
            counts = partition.step_counts(self.clients, dataset.classes, self.major, self.minor, self.step)
        parts = partition.draw(dataset.labels, np.arange(len(dataset.labels)), counts, rng)
        order = rng.permutation(self.clients)
        source = {}
        for client in sorted(order[: self.source_clients].tolist()):
            shift = self._corruption(KINDS, rng)
            train, check = partition.cut(parts[client], self.validation)
            source[client] = (Holding(train, shift), Holding(check, shift))
        streams = [
            StreamPlan(client, "test", [Holding(parts[client], self._corruption(EXTRA, rng))])
            for client in sorted(order[self.source_clients :].tolist())
        ]
        return Plan(dataset, source, streams)

    def _corruption(self, kinds: tuple[str, ...], rng: np.random.Generator) -> Shift:
        kind, severity = kinds[rng.integers(len(kinds))], int(rng.integers(1, 6))
        return Clean() if self.shift == "label" else Corruption(kind, severity)


DIGITS = ("mnist", "svhn", "usps", "synth-digits", "mnist-m")


@dataclass(frozen=True)
class TTPFLDomains(Scenario):
    """Leave one domain out: clients of the other domains train, those of the held-out one are new; step label shift.

    Digits-5 (`data: digits-5`): 10 clients per domain of about 743 images; `domains` may name other digit sets. PACS:
    7 clients per domain (the appendix and the code; §6 says 10).
    """

    data: Literal["digits-5", "pacs", "office-caltech10"] = "pacs"
    target: str = "sketch"
    domains: tuple[str, ...] = DIGITS  # of digits-5
    per_domain: Count | None = None  # clients; by default 10 for digits-5, else 7
    most: Count = 7438  # images of a digit domain, as in FedBN's preparation
    ratio: Count = 16  # major : minor
    step: Literal["pairs", "strict"] = "pairs"
    size: Count = 32
    validation: Share = 0.2

    def plan(self, seed: int) -> Plan:
        digits = self.data == "digits-5"
        dataset = sources.combine(self.domains, self.size, 3) if digits else sources.load(self.data, self.size)
        names, rng = dataset.names["domain"], np.random.default_rng([seed, 3])
        if self.target not in names:
            raise ConfigError(
                [f"target: unknown domain '{self.target}'; {nearest(self.target, names)}"], "ttpfl-domains"
            )
        each = self.per_domain or (10 if digits else 7)
        source, streams, groups = {}, [], dict[int, str]()
        for domain, rows in partition.by_column(dataset.column("domain"), np.arange(len(dataset.labels))).items():
            pool = rng.permutation(rows)[: self.most if digits else None]
            available = np.bincount(dataset.labels[pool], minlength=dataset.classes)
            weights = partition.step_counts(each, dataset.classes, self.ratio, 1, self.step)
            counts = partition.proportional(weights, available.tolist())
            for part in partition.draw(dataset.labels, pool, counts, rng):
                client = len(groups)
                groups[client] = names[domain]
                if names[domain] == self.target:
                    streams.append(StreamPlan(client, "test", [Holding(part)]))
                else:
                    train, check = partition.cut(part, self.validation)
                    source[client] = (Holding(train), Holding(check))
        return Plan(dataset, source, streams, groups=groups)
