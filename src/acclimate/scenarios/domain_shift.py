"""Test-time shift on the clients that trained, one domain each: covariate and domain shift (FedICON)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from acclimate.data import partition, sources
from acclimate.data.dataset import Dataset
from acclimate.data.partition import Rows
from acclimate.data.twins import twins
from acclimate.errors import ConfigError, nearest
from acclimate.options import Count, Share
from acclimate.scenarios.population import Holding, Plan, Scenario, StreamPlan
from acclimate.scenarios.shifts import any_common

DIGITS = ("mnist", "svhn", "usps", "font-digits", "mnist-m")
SUBSET = 743  # training images of a digit domain in FedBN's subset


@dataclass(frozen=True)
class DomainShift(Scenario):
    """One domain per client. `covariate`: tested on its own domain, clean and corrupted; `domain`: all but one train,
    and every one of them is tested on the domain left out.

    Images are tested from a data set's own test part where it has one, else from the share `test`; digits of one
    photograph or font, and equal images, are never on both sides. With `clients_per_domain` the same images are dealt
    to more clients. Computer fonts stand in for SynthDigits (`synth-digits`) unless `domains` says otherwise.
    """  # noqa: D205

    revision: ClassVar[int] = 1

    data: Literal["digits-5", "office-caltech10", "pacs", "domainnet"] = "office-caltech10"
    shift: Literal["covariate", "domain"] = "covariate"
    target: str | None = None  # of `domain`
    domains: tuple[str, ...] = DIGITS  # of digits-5
    clients_per_domain: Count = 1
    size: Count = 32
    most: Count | None = None  # images of a domain that train or validate; by default 743 for digits-5, else all
    most_test: Count = 1860  # images of a domain that are tested, as in FedBN's preparation
    severity: Count = 5
    test: Share = 0.2
    validation: Share = 0.1

    def plan(self, seed: int) -> Plan:
        digits = self.data == "digits-5"
        dataset = sources.combine(self.domains, self.size, 3) if digits else sources.load(self.data, self.size)
        rng, names, groups = np.random.default_rng([seed, 8]), dataset.names["domain"], twins(dataset)
        self._check(names)
        by_domain = partition.by_column(dataset.column("domain"), np.arange(len(dataset.labels)))
        halves = {d: self._halves(dataset, rng.permutation(rows), groups, rng) for d, rows in by_domain.items()}
        source, streams, each = {}, [], self.clients_per_domain
        for domain, (rest, own) in halves.items():
            if self.shift == "domain" and names[domain] == self.target:
                continue
            tests = partition.apart(own, _ends(own, each), groups)
            if not len(own) or len(rest) < 2 * each:
                raise ConfigError(
                    [f"{names[domain]}: expected at least two images to train on for each of {each} clients and "
                     f"some to test, found {len(rest)} and {len(own)}; fewer clients_per_domain, or another test"],
                    "domain-shift",
                )  # fmt: skip
            for k, part in enumerate(partition.apart(rest, _ends(rest, each), groups)):
                client = domain * each + k
                train, check = partition.apart(part, [len(partition.cut(part, self.validation)[0])], groups)
                source[client] = (Holding(train), Holding(check))
                if self.shift == "domain":
                    away = halves[names.index(str(self.target))][1]
                    streams.append(StreamPlan(client, "target", [Holding(away)]))
                else:
                    streams.append(StreamPlan(client, "original", [Holding(tests[k])]))
                    streams.append(StreamPlan(client, "corrupted", [Holding(tests[k], any_common(self.severity))]))
        remarks = ["computer fonts (font-digits) stand in for SynthDigits"] if "font-digits" in names else []
        domains = {client: names[client // each] for client in source}
        return Plan(dataset, source, streams, remarks=remarks, groups=domains)

    def _check(self, names: tuple[str, ...]) -> None:
        """That a domain is left out where one is to be, and not else."""
        wrong = ""
        if self.shift != "domain" and self.target is not None:
            wrong = f"target: a domain is left out by shift: domain only; found shift: {self.shift}"
        elif self.shift == "domain" and self.target is None:
            wrong = f"target: shift: domain leaves out a domain; possible: {', '.join(names)}"
        elif self.shift == "domain" and self.target not in names:
            wrong = f"target: unknown domain '{self.target}'; {nearest(str(self.target), names)}"
        if wrong:
            raise ConfigError([wrong], "domain-shift")

    def _halves(
        self, dataset: Dataset, rows: Rows, groups: NDArray[np.int64], rng: np.random.Generator
    ) -> tuple[Rows, Rows]:
        """A domain's images to train and validate on, and those to test."""
        split = dataset.columns.get("split", np.full(len(dataset.labels), -1))[rows]
        most = self.most or (SUBSET if self.data == "digits-5" else len(rows))
        if (split >= 0).all():
            rest, own = rows[split == 0], rows[split == 1]
        else:
            rest, own = map(rng.permutation, partition.apart(rows, [len(partition.cut(rows, self.test)[0])], groups))
        return rest[:most], own[: self.most_test]


def _ends(rows: Rows, parts: int) -> list[int]:
    return [round(len(rows) * k / parts) for k in range(1, parts)]
