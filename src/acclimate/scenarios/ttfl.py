"""Test-time federated learning over time: the protocol of TSA (FedTSA), with temporal and spatial heterogeneity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from acclimate.data import partition, sources
from acclimate.errors import ConfigError
from acclimate.options import Count, Share
from acclimate.scenarios.population import Holding, Plan, Scenario, StreamPlan
from acclimate.scenarios.shifts import common, rotated


@dataclass(frozen=True)
class TTFL(Scenario):
    """20 clients meet the 15 common corruptions one after another; neighbours in a group meet the same at a time.

    Spatial heterogeneity SH = groups / clients: 4 groups (0.2) by default, `groups: 1` is IID. Group g reads the list
    of corruptions rotated by g · ⌈15 / groups⌉. Temporal heterogeneity TH = segments / slots: `loops` passes through
    the list with floor(slots / loops) slots each, the last one taking the rest; 1 gives 0.02. Every client draws
    slots · batch_size test images, the same for every corruption; clients may overlap. The source model is trained by
    one client that holds the clean training set, or the first `most` images of it. `sizes`, `leads` and `reversed`
    write groups by hand (the case study, `acclimate reproduce tsa-table4`).
    """

    data: str = "cifar10"
    clients: Count = 20
    groups: Count = 4
    loops: Count = 1
    severity: Count = 5
    slots: Count = 50  # per corruption
    batch_size: Count = 10  # the one that `slots` counts in
    validation: Share = 0.0
    most: Count | None = None
    sizes: tuple[int, ...] | None = None
    leads: tuple[int, ...] | None = None
    reversed: tuple[int, ...] = ()

    def plan(self, seed: int) -> Plan:
        dataset, rng = sources.load(self.data), np.random.default_rng([seed, 6])
        split = dataset.column("split")
        train, check = partition.cut(np.flatnonzero(split == 0)[: self.most], self.validation)
        tests, each = np.flatnonzero(split == 1), self.slots * self.batch_size
        if each > len(tests):
            raise ConfigError([f"slots: {each} test images per client asked for, {len(tests)} there"], "ttfl")
        if self.loops > self.slots:
            raise ConfigError(
                [f"loops: {self.loops} passes asked for, {self.slots} slots per corruption there"], "ttfl"
            )
        starts = [self.slots // self.loops * number for number in range(self.loops)]
        ends = [slot * self.batch_size for slot in (*starts, self.slots)]  # of the passes, in images
        streams = []
        for client, group in enumerate(self._groups()):
            rows = rng.choice(tests, each, replace=False)
            order = rotated(common(self.severity), self._leads()[group], group in self.reversed)
            segments = [Holding(rows[a:b], shift) for a, b in pairwise(ends) for shift in order]
            streams.append(StreamPlan(client + 1, "test", segments))
        return Plan(dataset, {0: (Holding(train), Holding(check))}, streams)

    def _groups(self) -> list[int]:
        """The group of every client."""
        if self.sizes is None:
            return [client * self.groups // self.clients for client in range(self.clients)]
        if sum(self.sizes) != self.clients:
            raise ConfigError(
                [f"sizes: {list(self.sizes)} sum to {sum(self.sizes)}, not to {self.clients} clients"], "ttfl"
            )
        return [group for group, size in enumerate(self.sizes) for _ in range(size)]

    def _leads(self) -> list[int]:
        """How far ahead in the list of corruptions each group is."""
        groups = len(self.sizes) if self.sizes else self.groups
        leads = [g * math.ceil(15 / groups) for g in range(groups)] if self.leads is None else list(self.leads)
        if len(leads) != groups:
            raise ConfigError([f"leads: {len(leads)} given for {groups} groups"], "ttfl")
        return leads
