"""The table: what every system reached, from the store."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from acclimate.experiment.catalog import CALIBRATION
from acclimate.experiment.published import MEAN
from acclimate.store.records import Counts, Entry
from acclimate.store.run import ALL, Run
from acclimate.store.scores import Scored


@dataclass(frozen=True)
class Cell:
    """One system on one stream; lists have one value per seed."""

    accuracy: list[float]  # sample-weighted over test clients
    client_accuracy: list[float]  # the plain mean over clients
    balanced_accuracy: list[float]  # the mean over classes
    worst_decile: list[float]  # the mean of the worst ⌈10 %⌉ of clients
    harmed: list[float]  # the share of clients strictly below no adaptation, same model, phases, test and seed
    groups: dict[str, list[float]] = field(default_factory=dict)  # accuracy in each, and the mean over them; if several


@dataclass(frozen=True)
class Line:
    """One system: a cell per stream, and what it costs."""

    system: str
    selected: bool  # after the round best on source validation data; else after the last one
    cells: dict[str, Cell]
    ms_per_batch: float
    bytes_per_slot: float  # up and down, per client and slot, at test time
    knowledge_bytes: int  # sent to a client once, before the test
    left_out: int  # uploads that were not finite
    remarks: list[str]
    stepped_in: float | None = None  # the share of batches at which a guard did; None: there is none

    @property
    def title(self) -> str:
        return Entry(self.system, self.selected).title


@dataclass(frozen=True)
class PhaseTraffic:
    """What a phase sends, in bytes per taking-part client and round, and how many replies it could not use."""

    name: str
    rounds: int
    down: float
    up: float
    before: int  # the model, sent once before a calibration; of training 0
    replies: int = 0  # of all clients, rounds and seeds
    left_out: int = 0  # of these, not finite or never arrived

    @property
    def total(self) -> float:
        """What one client exchanges that takes part in every round; of ATP D + 2 T d numbers."""
        return self.before + self.rounds * (self.down + self.up)


@dataclass(frozen=True)
class Table:
    """All systems of a run."""

    run: str
    seeds: list[int]
    streams: list[str]
    lines: list[Line]
    phases: list[PhaseTraffic]
    finished: bool
    told: bool = False  # adapters were reset at the boundaries of shifts, which they cannot know
    unscored: dict[str, list[int]] = field(default_factory=dict)  # stream → clients without labels, of how many

    @property
    def guarded(self) -> bool:
        """Whether any system has a guard."""
        return any(line.stepped_in is not None for line in self.lines)

    def plain(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def table(run: Run) -> Table:
    """The table of a run."""
    by_line: dict[tuple[Entry, str], list[Scored]] = defaultdict(list)
    for one in run.scores():
        by_line[one.entry, one.stream].append(one)
    groups = run.groups()
    lines = [
        _line(run, entry, {stream: _cell(run, by_line[entry, stream], groups) for stream in run.streams})
        for entry in run.entries
    ]
    told = run.experiment["test"]["reset"] == "shift"
    return Table(run.name, run.seeds, run.streams, lines, _phases(run), bool(run.finished), told, _unscored(run))


def shift_accuracies(run: Run, entry: Entry, stream: str) -> dict[str, list[float]]:
    """Shift → accuracy over everybody's slots under it, per seed; severities of one kind count together."""
    sums: dict[str, dict[int, Counts]] = defaultdict(dict)
    for shift, seed, (correct, count) in run.shift_counts(entry, stream):
        of = sums[_SEVERITY.sub("", shift)]
        before = of.get(seed, Counts(0.0, 0.0))
        of[seed] = Counts(before.correct + correct, before.seen + count)
    return {shift: [c / n for _, (c, n) in sorted(by_seed.items()) if n] for shift, by_seed in sums.items()}


_SEVERITY = re.compile(r" [-+]?[\d.]+$")


def _unscored(run: Run) -> dict[str, list[int]]:
    """Clients that have no label, for streams with some: in the seed with most of them."""
    found: dict[str, list[int]] = {}
    for (_, _, stream), clients in run.counts.items():
        without = [sum(of.seen == 0 for of in clients.values()), len(clients)]
        if without[0]:
            found[stream] = max(found.get(stream, without), without)
    return {stream: found[stream] for stream in run.streams if stream in found}


def _line(run: Run, entry: Entry, cells: dict[str, Cell]) -> Line:
    costs = run.costs[entry]
    missed = costs.missed / run.exchanges(entry) if costs.missed else 0.0
    sent = [value for (system, _), value in run.noted("knowledge_bytes").items() if system == entry.system]
    return Line(
        entry.system,
        entry.selected,
        cells=cells,
        ms_per_batch=1000 * costs.seconds / costs.slots,
        bytes_per_slot=(costs.bytes_up + costs.bytes_down) / costs.slots,
        knowledge_bytes=max(sent, default=0),
        left_out=int(costs.left_out),
        stepped_in=None if costs.stepped_in is None else costs.stepped_in / costs.slots,
        remarks=_remarks(run, entry)
        + ([f"clients missed {100 * missed:.0f} % of the exchanges"] if missed else [])
        + _untested(run, entry),
    )


def _untested(run: Run, entry: Entry) -> list[str]:
    """Clients that others were tested on and this one was not: accuracies are then not of the same images."""
    few: dict[int, set[int]] = defaultdict(set)  # seed → clients
    for (_, seed, stream), clients in run.counts.items():
        if run.finished and (own := run.counts.get((entry, seed, stream))) is not None:
            few[seed] |= clients.keys() - own.keys()
    most = max(map(len, few.values()), default=0)
    return [f"without {most} client(s) that did not answer, so not of the same images as others"] if most else []


def _cell(run: Run, scores: Sequence[Scored], groups: Mapping[int, Mapping[int, str]]) -> Cell:
    """All seeds of one system on one stream."""
    cell = Cell(**{name: [getattr(one, name) for one in scores] for name in _MEASURES}, groups={})
    for one in scores:
        clients = run.counts[one.entry, one.seed, one.stream]
        for group, value in _grouped(clients, groups.get(one.seed, {})).items():
            cell.groups.setdefault(group, []).append(value)
    several = len(cell.groups) > 2 and len(cell.groups[MEAN]) == len(cell.accuracy)  # one group is everybody
    return replace(cell, groups=cell.groups if several else {})


_MEASURES = ("accuracy", "client_accuracy", "balanced_accuracy", "worst_decile", "harmed")


def _grouped(clients: Mapping[int, Counts], groups: Mapping[int, str]) -> dict[str, float]:
    """The mean over groups and, for each, the accuracy over all images of its clients."""
    sums: dict[str, Counts] = {}
    for client, name in groups.items():
        if client in clients and clients[client].seen:
            before = sums.get(name, Counts(0.0, 0.0))
            sums[name] = Counts(before.correct + clients[client].correct, before.seen + clients[client].seen)
    each = {name: correct / count for name, (correct, count) in sorted(sums.items())}
    return {MEAN: statistics.fmean(each.values()), **each} if each else {}


def _phases(run: Run) -> list[PhaseTraffic]:
    """The phases in their order; those that differ in nothing but the seed are one."""
    sent = {system: value for (system, _), value in run.noted("knowledge_bytes").items()}
    found: dict[tuple[int, PhaseTraffic], tuple[int, int]] = {}
    for phase in run.phases():
        models = [
            sent.get(run.baseline(Entry(system["name"])).system, 0)
            for system in run.experiment["systems"]
            if [one["name"] for one in system["phases"]][phase.position : phase.position + 1] == [phase.name]
        ]
        before = max(models, default=0) if phase.name in CALIBRATION else 0
        key = (phase.position, PhaseTraffic(phase.name, phase.rounds, phase.down, phase.up, before))
        replies, left_out = found.get(key, (0, 0))
        found[key] = (replies + phase.replies, left_out + phase.left_out)
    ordered = sorted(found.items(), key=lambda item: item[0][0])
    return [replace(phase, replies=replies, left_out=left_out) for (_, phase), (replies, left_out) in ordered]


def named_seeds(seeds: Sequence[int]) -> str:
    """'seed 0', or 'seeds 0, 1'."""
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def by_remark(remarks: Mapping[str, Sequence[str]]) -> list[str]:
    """One line for each remark, with all systems that it is of.

    >>> by_remark({"a": ["tuned", "old"], "b": ["old"]})
    ['a: tuned', 'a, b: old']
    """
    systems: dict[str, list[str]] = {}
    for system, each in remarks.items():
        for remark in each:
            systems.setdefault(remark, []).append(system)
    return [f"{', '.join(names)}: {remark}" for remark, names in systems.items()]


def _remarks(run: Run, entry: Entry) -> list[str]:
    seeds: dict[str, list[int]] = {}
    for name, say in _SAID.items():
        if name in (_OF_SELECTED if entry.selected else _OF_LAST):
            for (system, seed), note in sorted(run.noted(name).items()):
                if system == entry.system:
                    seeds.setdefault(say(note), []).append(seed)
    own: list[str] = run.noted("own").get((entry.system, ALL), [])
    return [*own, *(f"{named_seeds(of)}: {remark}" for remark, of in seeds.items())]


def _tuned(note: dict[str, Any]) -> str:
    chosen = ", ".join(f"{k}={v}" for k, v in note["chosen"].items() if k != "name")
    return f"tuned on source validation data: {chosen}"


def _taken(note: str) -> str:
    return f"as measured by run {note}"


_SAID: dict[str, Callable[[Any], str]] = {
    "tuned": _tuned,
    "selected": lambda note: f"round {note['round']}, best on source validation data",
    "reused": lambda note: f"made by other code (--reuse): {', '.join(note)}",
    "taken": _taken,
    "taken selected": _taken,
}
_OF_LAST = ("tuned", "reused", "taken")
_OF_SELECTED = ("tuned", "selected", "reused", "taken selected")
