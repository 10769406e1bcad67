"""A natural shift with nobody's thumb on the scale: MNIST by writer, trained on employees, tested on students."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from acclimate.data import partition, sources
from acclimate.options import Count, Share
from acclimate.scenarios.population import Holding, Plan, Scenario, StreamPlan

EMPLOYEES, STUDENTS = 0, 4  # NIST's series


@dataclass(frozen=True)
class Writers(Scenario):
    """Every client is one writer. NIST employees of the training set train; students of the test set are new."""

    validation: Share = 0.2
    least: Count = 20  # images a writer must have
    most_source: Count | None = None  # writers; None: all
    most_new: Count | None = None

    def plan(self, seed: int) -> Plan:
        dataset, rng = sources.load("mnist-writers"), np.random.default_rng([seed, 10])
        columns, everything = dataset.columns, np.arange(len(dataset.labels))
        chosen = []
        for series, split, most in ((EMPLOYEES, 0, self.most_source), (STUDENTS, 1, self.most_new)):
            pool = everything[(columns["hsf"] == series) & (columns["split"] == split)]
            writers = [
                rows for rows in partition.by_column(columns["writer"], pool).values() if len(rows) >= self.least
            ]
            order = rng.permutation(len(writers))[:most]
            chosen.append([rng.permutation(writers[i]) for i in order])
        source = {}
        for client, rows in enumerate(chosen[0]):
            train, check = partition.cut(rows, self.validation)
            source[client] = (Holding(train), Holding(check))
        streams = [StreamPlan(len(source) + k, "test", [Holding(rows)]) for k, rows in enumerate(chosen[1])]
        return Plan(dataset, source, streams)
