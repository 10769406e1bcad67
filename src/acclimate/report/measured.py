"""A piece of a published table that was run: what is worth keeping of its run as plain data, and questions to that."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from acclimate.experiment.published import MEAN, ONLY, Published, Values, columns, tests
from acclimate.report.claims import Clients, Scores
from acclimate.report.sittings import Sitting, System, other_settings, together
from acclimate.report.table import named_seeds, shift_accuracies, table
from acclimate.store.records import Entry
from acclimate.store.run import Run

if TYPE_CHECKING:  # what needs torch waits until an experiment is read
    from acclimate.experiment.experiment import Experiment
    from acclimate.experiment.experiment import System as Tested


SAME_ROUND = "of the same round"  # whom a selected round is compared with


def measured(run: Run) -> dict[str, Any]:
    """What a results file has of a run."""
    found, code = table(run), run.noted("code")
    return {
        **{key: getattr(run, key) for key in ("name", "started", "finished", "versions", "experiment", "worked")},
        "baselines": SAME_ROUND,
        "groups": run.groups(),
        "phases": [asdict(phase) for phase in found.phases],
        "systems": {
            line.title: {
                "of": entry.system,
                "seeds": [seed for seed in found.seeds if any((entry, seed, s) in run.counts for s in found.streams)],
                "code": sorted({digest for (system, _), digest in code.items() if system == entry.system}),
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


def from_file(piece: Any) -> list[Sitting]:
    """The sittings of a piece of a results file; earlier code kept the last one only, and seeds of all its systems."""
    return [_comparable(one) for one in (piece if isinstance(piece, list) else [_of_one(piece)])]


def _comparable(sitting: Sitting) -> Sitting:
    """Earlier code compared selected rounds with the last one, so that it is not known whom they harmed."""
    if sitting.get("baselines") == SAME_ROUND:
        return sitting
    chosen, of = Entry("", selected=True).title, sitting["systems"].items()
    return {**sitting, "systems": {title: _unknown(one) if title.endswith(chosen) else one for title, one in of}}


def _unknown(system: System) -> System:
    streams = {
        stream: {**cell, "harmed": [None] * len(cell.get("harmed", []))} for stream, cell in system["streams"].items()
    }
    return {**system, "streams": streams}


def _of_one(piece: dict[str, Any]) -> Sitting:
    """Still earlier code kept clients and shifts of the first stream only, beside the streams."""
    first, systems = piece.get("stream"), {}
    for title, system in piece["systems"].items():
        kept = {key: system[key] for key in ("clients", "shifts") if key in system}
        streams = {
            stream: {"clients": {}, "shifts": {}, **cell, **(kept if stream == first else {})}
            for stream, cell in system["streams"].items()
        }
        of = title.removesuffix(Entry("", selected=True).title)
        rest = {key: value for key, value in system.items() if key not in kept}
        systems[title] = {**rest, "of": of, "seeds": piece["seeds"], "streams": streams}
    return {**{key: value for key, value in piece.items() if key not in ("stream", "seeds")}, "systems": systems}


@dataclass(frozen=True)
class Part:
    """A piece with what was measured in its sittings (`measured`, perhaps by way of a file)."""

    paper: Published
    piece: str
    sittings: Sequence[Sitting]

    @cached_property
    def everything(self) -> dict[str, System]:
        """Whatever was tested."""
        parts: dict[str, list[System]] = {}
        for sitting in self.sittings:
            for title, system in sitting["systems"].items():
                parts.setdefault(title, []).append(system)
        return {title: together(of) for title, of in parts.items()}

    @cached_property
    def systems(self) -> dict[str, System]:
        """Those with a row in the table, in its order."""
        return {title: self.everything[title] for title in self.paper.rows if title in self.everything}

    @cached_property
    def seeds(self) -> list[int]:
        """Those that every row has."""
        each = [set(system["seeds"]) for system in self.systems.values()]
        return sorted(set.intersection(*each)) if each else []

    @cached_property
    def streams(self) -> list[str]:
        return list(next(iter(self.everything.values()))["streams"])

    def lacking(self) -> list[str]:
        """What the table asks for and no sitting has, in words: rows, and seeds of some of them."""
        wanted, by_seeds = self._wanted(), dict[tuple[int, ...], list[str]]()
        rows = {
            s.name: next(self.paper.rows[title] for title in self._titles(s)) for s in wanted.systems if self._titles(s)
        }
        for system in wanted.systems:
            if left := tuple(seed for seed in wanted.seeds if self._lacks(system, seed)):
                by_seeds.setdefault(left, []).append(rows[system.name])
        said = []
        for seeds, of in by_seeds.items():
            names = [] if of == list(rows.values()) else of
            said.append(", ".join([*names, *([named_seeds(seeds)] if seeds != wanted.seeds else [])]))
        if said == [""]:  # every row with every seed
            return [self.piece]
        return [f"{self.piece} ({'; '.join(said)})"] if said else []

    def rest(self) -> list[list[str]]:
        """Overrides with which the piece lacks nothing, one seed after another."""
        wanted = self._wanted()
        left = {seed: [s.name for s in wanted.systems if self._lacks(s, seed)] for seed in wanted.seeds}
        return [[f"seeds=[{seed}]", f"systems=[{', '.join(names)}]"] for seed, names in left.items() if names]

    def _wanted(self) -> Experiment:
        return self.paper.pieces[self.piece].read(other_settings(self.sittings[-1]))

    def _titles(self, system: Tested) -> list[str]:
        """What of a system has a row, in the order of the rows."""
        of = [Entry(system.name, selected).title for selected in (False, True) if system.select or not selected]
        return [title for title in self.paper.rows if title in of]

    def _lacks(self, system: Tested, seed: int) -> bool:
        return any(seed not in self.everything.get(title, {"seeds": ()})["seeds"] for title in self._titles(system))

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

    def accuracy(self, system: str, stream: str, seeds: Sequence[int] | None = None) -> float:
        """The mean of that over its seeds, or some of them, in %; not a number where a system was not tested."""
        if system not in self.systems or stream not in self.columns:
            return math.nan
        own = self.systems[system]["seeds"]
        by_seed = dict(zip(own, self.accuracies(system, stream), strict=True))
        return 100 * statistics.fmean(by_seed[seed] for seed in (own if seeds is None else seeds))

    @cached_property
    def scores(self) -> Scores:
        """Every client, for claims."""
        groups = {seed: by for sitting in self.sittings for seed, by in sitting.get("groups", {}).items()}
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
            of = [system["streams"][stream] for system in self.everything.values()]
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
