"""Unsupervised personalised federated learning: the protocol of FedTTA (UPFL), where half of the clients are new."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from acclimate.data import partition, sources
from acclimate.data.dataset import Dataset
from acclimate.data.image_shifts import Rotation
from acclimate.data.partition import Rows
from acclimate.errors import ConfigError
from acclimate.options import Count, Positive, PositiveShare, Share
from acclimate.scenarios.population import Holding, Plan, Scenario, StreamPlan

NATURAL = {
    "mnist": "shards",
    "fashion-mnist": "shards",
    "cifar10": "distinct",
    "cifar100": "superclass",
    "femnist": "writer",
    "mnist-writers": "writer",
}


@dataclass(frozen=True)
class UPFL(Scenario):
    """100 clients, half train (85/15) and half are new; partitions by data set as in the paper's Table 1.

    MNIST, Fashion-MNIST: two random shards, maybe of one class, or of three where classes differ in size; CIFAR-10: two
    distinct classes; CIFAR-100: each superclass cut in five; FEMNIST: by writer. `dirichlet`: the training set to half
    of the clients with `alpha`, the test set to the others with `test_alpha` (§4.3); whoever gets nothing is left out,
    as in the authors' code, and a remark says how many. `test_share` keeps only a part of what new clients have (§4.4);
    `public` sets a part of everything aside as unlabelled public data, for devices with models of different sizes
    (`model: {name: fedtta-cnn, variants: [{width: small}, {width: medium}, {width: big}]}`).
    """

    data: str = "mnist"
    partition: Literal["natural", "shards", "distinct", "superclass", "writer", "dirichlet"] = "natural"
    clients: Count = 100
    new: PositiveShare = 0.5
    validation: Share = 0.15
    alpha: Positive = 0.1
    test_alpha: Positive = 0.1
    test_share: PositiveShare = 1.0
    public: Share = 0.0

    def plan(self, seed: int) -> Plan:
        dataset, rng = sources.load(self.data), np.random.default_rng([seed, 4])
        everything = rng.permutation(len(dataset.labels))
        shared, rest = np.split(everything, [round(self.public * len(everything))])
        fresh, remarks = self._fresh(self.clients), list[str]()
        if self.partition == "dirichlet":
            split = dataset.column("split")[rest]
            old, notes = _dealt(dataset, rest[split == 0], self.clients - fresh, self.alpha, rng, "source", least=2)
            new, more = _dealt(dataset, rest[split == 1], fresh, self.test_alpha, rng, "new", least=1)
            remarks += notes + more
        else:
            parts = self._parts(dataset, rest, rng)
            order = rng.permutation(len(parts))
            fresh = self._fresh(len(parts))
            if len(parts) < self.clients:
                remarks.append(f"{len(parts)} clients instead of {self.clients}: '{self.data}' has no more writers")
            old, new = [parts[i] for i in order[fresh:]], [parts[i] for i in order[:fresh]]
        source = {}
        for client, rows in enumerate(old):
            train, check = partition.cut(rows, self.validation)
            source[client] = (Holding(train), Holding(check))
        streams = [
            StreamPlan(len(old) + k, "test", [Holding(rows[: max(1, round(self.test_share * len(rows)))])])
            for k, rows in enumerate(new)
        ]
        return Plan(dataset, source, streams, Holding(shared) if len(shared) else None, remarks)

    def _fresh(self, clients: int) -> int:
        """How many of some clients are new; somebody is, and somebody is not."""
        fresh = round(clients * self.new)
        if not 0 < fresh < clients:
            raise ConfigError(
                [f"expected clients that train and new ones; clients: {clients} with new: {self.new:g} makes "
                 f"{clients - fresh} and {fresh}; possible: clients of at least 2, and new such as 0.5"], "upfl",
            )  # fmt: skip
        return fresh

    def _parts(self, dataset: Dataset, pool: Rows, rng: np.random.Generator) -> list[Rows]:
        kind = NATURAL.get(self.data, "shards") if self.partition == "natural" else self.partition
        if kind == "shards":
            return partition.shards(dataset.labels, pool, self.clients, rng)
        if kind == "distinct":
            return partition.distinct_classes(dataset.labels, pool, self.clients, dataset.classes, rng)
        if kind not in dataset.columns:
            raise ConfigError(
                [f"partition: '{self.data}' has no {kind} for its images; possible: shards, distinct"], "upfl"
            )
        groups = list(partition.by_column(dataset.column(kind), pool).values())
        if kind == "superclass":
            cuts, beyond = divmod(self.clients, len(groups))
            if beyond:
                expected = f"a multiple of {len(groups)}, since all superclasses are cut alike"
                possible = (cuts + 1) * len(groups)
                raise ConfigError([f"clients: expected {expected}; found {self.clients}; possible: {possible}"], "upfl")
            return [part for rows in groups for part in np.array_split(rng.permutation(rows), cuts)]
        chosen = rng.permutation(len(groups))[: self.clients]
        return [rng.permutation(groups[i]) for i in chosen]


def _dealt(
    dataset: Dataset, pool: Rows, clients: int, alpha: float, rng: np.random.Generator, who: str, least: int
) -> tuple[list[Rows], list[str]]:
    """Parts of `pool` by Dir(alpha) without those below `least` images, and what to say of what was left out."""
    parts = partition.dirichlet(dataset.labels, pool, clients, dataset.classes, alpha, rng, least=0)
    kept = [rows for rows in parts if len(rows) >= least]
    if not kept:
        raise ConfigError(
            [f"Dir({alpha:g}) left none of {clients} {who} clients with images; possible: a larger alpha"], "upfl"
        )
    unused = len(pool) - sum(map(len, kept))
    said = f"{clients - len(kept)} of {clients} {who} clients and {unused} of {len(pool)} images"
    return kept, [f"left out by Dir({alpha:g}), cut to whole images: {said}"] if unused or len(kept) < clients else []


@dataclass(frozen=True)
class UPFLRotation(Scenario):
    """Concept shift (appendix F): 1,000 images to 50 clients; source clients turn theirs by 0, 30 or 60 degrees, new
    ones by 15 or 45.
    """  # noqa: D205

    data: str = "mnist"
    clients: Count = 50
    per_client: Count = 20
    angles: tuple[float, ...] = (0, 30, 60)
    test_angles: tuple[float, ...] = (15, 45)
    validation: Share = 0.15

    def plan(self, seed: int) -> Plan:
        chosen = {"angles": self.angles, "test_angles": self.test_angles}
        wrong = [f"{name}: expected at least one angle; found none" for name, angles in chosen.items() if not angles]
        if self.clients < 2:
            wrong.append("clients: expected at least 2, one that trains and a new one; found 1")
        if wrong:
            raise ConfigError(wrong, "upfl-rotation")
        dataset, rng = sources.load(self.data), np.random.default_rng([seed, 5])
        pool = rng.permutation(len(dataset.labels))[: self.clients * self.per_client]
        source, streams, groups = {}, [], {}
        for client, rows in enumerate(partition.iid(pool, self.clients, rng)):
            if client < self.clients // 2:
                turn = Rotation(float(rng.choice(self.angles)))
                train, check = partition.cut(rows, self.validation)
                source[client] = (Holding(train, turn), Holding(check, turn))
            else:
                turn = Rotation(float(rng.choice(self.test_angles)))
                streams.append(StreamPlan(client, "test", [Holding(rows, turn)]))
            groups[client] = f"{turn.degrees:g}°"
        return Plan(dataset, source, streams, groups=groups)
