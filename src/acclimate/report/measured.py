"""A piece of a published table that was run: what is worth keeping of its run as plain data, and questions to that."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from acclimate.experiment.published import MEAN, ONLY, Published, Values, columns, tests
from acclimate.report.claims import Clients, Scores
from acclimate.report.table import shift_accuracies, table
from acclimate.store.run import Run


def measured(run: Run) -> dict[str, Any]:
    """What a results file has of a run."""
    found = table(run)
    return {
        **{key: getattr(run, key) for key in ("name", "started", "finished", "versions", "experiment", "worked")},
        "seeds": found.seeds,
        "groups": run.groups(),
        "phases": [asdict(phase) for phase in found.phases],
        "systems": {
            line.title: {
                "streams": {
                    stream: {
                        **vars(cell),
                        "clients": run.client_accuracies(entry, stream),
                        "shifts": shift_accuracies(run, entry, stream),
                    }
                    for stream, cell in line.cells.items()
                },
                "ms_per_batch": line.ms_per_batch,
                "remarks": line.remarks,
            }
            for entry, line in zip(run.entries, found.lines, strict=True)
        },
    }


def from_file(piece: dict[str, Any]) -> dict[str, Any]:
    """A piece of a results file; earlier code kept clients and shifts of the first stream only, beside the streams."""
    if "stream" not in piece:
        return piece
    first, systems = piece["stream"], {}
    for name, system in piece["systems"].items():
        kept = {key: system[key] for key in ("clients", "shifts")}
        streams = {stream: {**cell, **(kept if stream == first else {})} for stream, cell in system["streams"].items()}
        systems[name] = {**{key: value for key, value in system.items() if key not in kept}, "streams": streams}
    return {**{key: value for key, value in piece.items() if key != "stream"}, "systems": systems}


@dataclass(frozen=True)
class Part:
    """A piece with what was measured (`measured`, perhaps by way of a file)."""

    paper: Published
    piece: str
    found: dict[str, Any]

    @property
    def seeds(self) -> list[int]:
        seeds: list[int] = self.found["seeds"]
        return seeds

    @cached_property
    def systems(self) -> dict[str, Any]:
        """Those with a row in the table."""
        return {name: system for name, system in self.found["systems"].items() if name in self.paper.rows}

    @cached_property
    def streams(self) -> list[str]:
        return list(next(iter(self.found["systems"].values()))["streams"])

    @property
    def columns(self) -> list[str]:
        """The streams and, where several are tests, their mean."""
        return columns(self.streams)

    def cell(self, system: str, stream: str) -> dict[str, Any]:
        cell: dict[str, Any] = self.systems[system]["streams"][stream]
        return cell

    def groups(self, system: str, stream: str) -> dict[str, list[float]]:
        """The mean over groups and the accuracy in each, for every seed that has it; nothing without several."""
        groups: dict[str, list[float]] = self.cell(system, stream).get("groups", {})
        return groups

    def shifts(self, system: str, stream: str) -> dict[str, list[float]]:
        """The same by shift, the mean over all images first."""
        cell = self.cell(system, stream)
        return {MEAN: cell["accuracy"], **cell.get("shifts", {})}

    def printed(self, system: str, stream: str) -> Values | None:
        """What the paper has."""
        found = self.paper.printed(self.paper.rows[system], self.piece)
        return found.get(stream, found.get(ONLY))

    def paper_mean(self, system: str, stream: str) -> float | None:
        """The mean of that in %; over groups, where it has every group but does not print their mean."""
        value = self.printed(system, stream)
        groups = self.groups(system, stream) if self.by_group and stream in self.streams else {}
        if isinstance(value, dict) and groups and value.keys() == groups.keys() - {MEAN}:
            return statistics.fmean(mean for mean in map(mean_of, value.values()) if mean is not None)
        return mean_of(value)

    @cached_property
    def by_group(self) -> bool:
        """Whether the paper has values by group, so that its mean is one over groups."""
        return not self.paper.by_shift and any(
            isinstance(self.printed(system, stream), dict) for system in self.systems for stream in self.streams
        )

    def accuracies(self, system: str, stream: str) -> list[float]:
        """What compares with the paper's mean, for each seed: over all images, or over groups as in the paper."""
        if stream == MEAN:
            each = [self.accuracies(system, test) for test in tests(self.streams)]
            return [statistics.fmean(values) for values in zip(*each, strict=True)]
        accuracies: list[float] = self.cell(system, stream)["accuracy"]
        return self.groups(system, stream).get(MEAN, accuracies) if self.by_group else accuracies

    def accuracy(self, system: str, stream: str, seeds: Sequence[int]) -> float:
        """The mean of that over some of the seeds, in %; not a number where a system was not tested."""
        if system not in self.systems or stream not in self.columns:
            return math.nan
        by_seed = dict(zip(self.seeds, self.accuracies(system, stream), strict=True))
        return 100 * statistics.fmean(by_seed[seed] for seed in seeds)

    @cached_property
    def scores(self) -> Scores:
        """Every client, for claims."""
        groups = self.found.get("groups", {})
        return Scores(
            {
                stream: {system: _by_client(self.cell(system, stream).get("clients", {})) for system in self.systems}
                for stream in self.streams
            },
            {(int(seed), int(client)): name for seed, by in groups.items() for client, name in by.items()},
        )

    def unmet(self) -> list[str]:
        """Published values and claims about what the run does not have."""
        shifts: dict[str, set[str]] = {stream: set() for stream in self.streams}
        groups: dict[str, set[str]] = {stream: set() for stream in self.streams}
        for stream in self.streams:
            of = [system["streams"][stream] for system in self.found["systems"].values()]
            shifts[stream].update(*(cell.get("shifts", {}) for cell in of))
            clients = {key for cell in of for key in _by_client(cell.get("clients", {}))}
            groups[stream].update(name for key, name in self.scores.groups.items() if key in clients)
        return list(self.paper.unmet(self.piece, groups, shifts))


def mean_of(value: Values | None) -> float | None:
    """The mean among values, if there is one.

    >>> mean_of((50.0, 1.5)), mean_of({"fog": 40.0, "mean": 45.0}), mean_of({"fog": 40.0})
    (50.0, 45.0, None)
    """
    if isinstance(value, dict):
        return mean_of(value.get(MEAN))
    return value[0] if isinstance(value, tuple) else value


def _by_client(by_seed: Mapping[Any, Mapping[Any, float]]) -> Clients:
    return {(int(seed), int(client)): value for seed, by in by_seed.items() for client, value in by.items()}
