"""The table: what every system reached, from the store."""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from acclimate.experiment.catalog import CALIBRATION
from acclimate.experiment.published import MEAN
from acclimate.store.database import Store


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
    cells: dict[str, Cell]
    ms_per_batch: float
    bytes_per_slot: float  # up and down, per client and slot, at test time
    knowledge_bytes: int  # sent to a client once, before the test
    left_out: int  # uploads that were not finite
    remarks: list[str]


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

    def plain(self) -> dict[str, Any]:
        """For `--json`."""
        return asdict(self)


def table(store: Store, run: dict[str, Any]) -> Table:
    """The table of a run (one of `store.runs()`)."""
    id, facts = run["id"], _facts(store, run["id"])
    streams = store.notes(id, "streams").get(("", -1), [])
    systems = _order(store, run, {system for system, _, _ in facts.counts})
    baseline = {system: other for (system, _), other in store.notes(id, "baseline").items()}
    lines = [_line(store, run, facts, system, baseline.get(system, system), streams) for system in systems]
    experiment = run["experiment"]
    told = experiment["test"]["reset"] == "shift"
    phases = _phases(store, run, baseline)
    unscored = _unscored(facts, streams)
    return Table(run["name"], experiment["seeds"], streams, lines, phases, bool(run["finished"]), told, unscored)


def client_accuracies(store: Store, run: int, system: str, stream: str) -> dict[int, dict[int, float]]:
    """Seed → client → its accuracy over a whole stream."""
    found: dict[int, dict[int, float]] = defaultdict(dict)
    for seed, client, correct, count in store.select(
        f"SELECT seed, client, {_SUMS} FROM row WHERE run = ? AND system = ? AND phase = 'test' AND stream = ? "
        "AND slot >= 0 AND metric IN ('correct', 'count') GROUP BY seed, client",
        run,
        system,
        stream,
    ):
        if count:
            found[seed][client] = correct / count
    return dict(found)


def client_groups(store: Store, run: int) -> dict[int, dict[int, str]]:
    """Seed → client → its domain, angle or whatever the scenario groups clients by."""
    found = store.notes(run, "groups")
    return {seed: {int(client): name for client, name in of.items()} for (_, seed), of in sorted(found.items())}


def shift_accuracies(store: Store, run: int, system: str, stream: str) -> dict[str, list[float]]:
    """Shift → accuracy over everybody's slots under it, per seed; severities of one kind count together."""
    sums: Any = defaultdict(lambda: defaultdict(lambda: [0.0, 0.0]))
    for shift, seed, correct, count in store.select(
        f"SELECT shift, seed, {_SUMS} FROM row WHERE run = ? AND system = ? AND phase = 'test' AND stream = ? "
        "AND slot >= 0 AND metric IN ('correct', 'count') GROUP BY shift, seed ORDER BY min(slot), shift",
        run,
        system,
        stream,
    ):
        pair = sums[_SEVERITY.sub("", shift)][seed]
        pair[0], pair[1] = pair[0] + correct, pair[1] + count
    return {shift: [c / n for _, (c, n) in sorted(by_seed.items()) if n] for shift, by_seed in sums.items()}


_SUMS = "sum(CASE metric WHEN 'correct' THEN value ELSE 0 END), sum(CASE metric WHEN 'count' THEN value ELSE 0 END)"
_SEVERITY = re.compile(r" [-+]?[\d.]+$")


@dataclass(frozen=True)
class _Facts:
    # (system, seed, stream) → client → (correct, count)
    counts: dict[tuple[str, int, str], dict[int, tuple[float, float]]]
    # (system, seed, stream) → class → (correct, count)
    classes: dict[tuple[str, int, str], dict[str, tuple[float, float]]]
    # system → metric → (sum, number of slots)
    costs: dict[str, dict[str, tuple[float, int]]]
    groups: dict[int, dict[int, str]]  # seed → client → name


def _facts(store: Store, run: int) -> _Facts:
    counts: Any = defaultdict(dict)
    for system, seed, stream, client, correct, count in store.select(
        f"SELECT system, seed, stream, client, {_SUMS} FROM row WHERE run = ? AND phase = 'test' "
        "AND slot >= 0 AND metric IN ('correct', 'count') GROUP BY system, seed, stream, client",
        run,
    ):
        counts[system, seed, stream][client] = (correct, count)
    classes: Any = defaultdict(dict)
    for system, seed, stream, metric, value in store.select(
        "SELECT system, seed, stream, metric, sum(value) FROM row WHERE run = ? AND phase = 'test' AND slot = -1 "
        "GROUP BY system, seed, stream, metric",
        run,
    ):
        kind, _, label = metric.partition("/")
        correct, count = classes[system, seed, stream].get(label, (0.0, 0.0))
        pair = (value, count) if kind == "correct" else (correct, value)
        classes[system, seed, stream][label] = pair
    costs: Any = defaultdict(dict)
    for system, metric, total, slots in store.select(
        "SELECT system, metric, sum(value), count(*) FROM row WHERE run = ? AND phase = 'test' AND slot >= 0 "
        "AND metric NOT IN ('correct') GROUP BY system, metric",
        run,
    ):
        costs[system][metric] = (total, slots)
    return _Facts(dict(counts), dict(classes), dict(costs), client_groups(store, run))


def _unscored(facts: _Facts, streams: list[str]) -> dict[str, list[int]]:
    """Clients that have no label, for streams with some: in the seed with most of them."""
    found: dict[str, list[int]] = {}
    for (_, _, stream), clients in facts.counts.items():
        without = [sum(count == 0 for _, count in clients.values()), len(clients)]
        if without[0]:
            found[stream] = max(found.get(stream, without), without)
    return {stream: found[stream] for stream in streams if stream in found}


def _line(store: Store, run: dict[str, Any], facts: _Facts, system: str, baseline: str, streams: list[str]) -> Line:
    costs = facts.costs[system]
    slots = costs["count"][1]
    knowledge = [v for (name, _), v in store.notes(run["id"], "knowledge_bytes").items() if name == _plain(system)]
    missed = costs.get("missed", (0.0, 0))[0] / slots
    return Line(
        system=system,
        cells={stream: _cell(facts, system, baseline, stream, run["experiment"]["seeds"]) for stream in streams},
        ms_per_batch=1000 * costs["seconds"][0] / slots,
        bytes_per_slot=sum(costs.get(name, (0.0, 0))[0] for name in ("bytes_up", "bytes_down")) / slots,
        knowledge_bytes=max(knowledge, default=0),
        left_out=int(costs.get("left_out", (0.0, 0))[0]),
        remarks=_remarks(store, run["id"], system)
        + ([f"clients missed {100 * missed:.0f} % of the exchanges"] if missed else []),
    )


def _cell(facts: _Facts, system: str, baseline: str, stream: str, seeds: list[int]) -> Cell:
    cell = Cell([], [], [], [], [])
    for seed in seeds:
        clients = {k: (c, n) for k, (c, n) in facts.counts.get((system, seed, stream), {}).items() if n}
        if not clients:  # not tested yet, or nobody has labels
            continue
        each = {client: correct / count for client, (correct, count) in clients.items()}
        cell.accuracy.append(sum(c for c, _ in clients.values()) / sum(n for _, n in clients.values()))
        cell.client_accuracy.append(statistics.fmean(each.values()))
        recalls = [c / n for c, n in facts.classes.get((system, seed, stream), {}).values() if n]
        cell.balanced_accuracy.append(statistics.fmean(recalls) if recalls else math.nan)
        worst = sorted(each.values())[: math.ceil(len(each) / 10)]
        cell.worst_decile.append(statistics.fmean(worst))
        plain = {k: c / n for k, (c, n) in facts.counts.get((baseline, seed, stream), {}).items() if n}
        both = [k for k in each if k in plain]
        cell.harmed.append(sum(each[k] < plain[k] for k in both) / len(both) if both else math.nan)
        for group, value in _grouped(clients, facts.groups.get(seed, {})).items():
            cell.groups.setdefault(group, []).append(value)
    several = len(cell.groups) > 2 and len(cell.groups[MEAN]) == len(cell.accuracy)  # one group is everybody
    return replace(cell, groups=cell.groups if several else {})


def _grouped(clients: Mapping[int, tuple[float, float]], groups: Mapping[int, str]) -> dict[str, float]:
    """The mean over groups and, for each, the accuracy over all images of its clients."""
    sums: dict[str, list[float]] = {}
    for client, name in groups.items():
        if client in clients:
            correct, count = sums.get(name, (0.0, 0.0))
            sums[name] = [correct + clients[client][0], count + clients[client][1]]
    each = {name: correct / count for name, (correct, count) in sorted(sums.items())}
    return {MEAN: statistics.fmean(each.values()), **each} if each else {}


def _phases(store: Store, run: dict[str, Any], baseline: dict[str, str]) -> list[PhaseTraffic]:
    """The phases in their order; those that differ in nothing but the seed are one."""
    sent = {system: value for (system, _), value in store.notes(run["id"], "knowledge_bytes").items()}
    found: dict[tuple[int, PhaseTraffic], tuple[int, int]] = {}
    for label, rounds, down, up, replies, left_out in store.select(
        "SELECT phase, count(DISTINCT round), avg(CASE metric WHEN 'bytes_down' THEN value END), "
        "avg(CASE metric WHEN 'bytes_up' THEN value END), sum(metric IN ('bytes_up', 'lost')), "
        "sum(metric IN ('left_out', 'lost')) FROM row WHERE run = ? AND system = '' "
        "AND metric IN ('bytes_down', 'bytes_up', 'left_out', 'lost') GROUP BY seed, phase",
        run["id"],
    ):
        position, _, name = label.partition("#")[0].partition(":")
        models = [
            sent.get(baseline.get(system["name"], ""), 0)
            for system in run["experiment"]["systems"]
            if len(system["phases"]) > int(position) and system["phases"][int(position)]["name"] == name
        ]
        before = max(models, default=0) if name in CALIBRATION else 0
        key = (int(position), PhaseTraffic(name, rounds, down, up, before))
        others = found.get(key, (0, 0))
        found[key] = (others[0] + replies, others[1] + left_out)
    ordered = sorted(found.items(), key=lambda item: item[0][0])
    return [replace(phase, replies=replies, left_out=left_out) for (_, phase), (replies, left_out) in ordered]


def _order(store: Store, run: dict[str, Any], found: set[str]) -> list[str]:
    """Systems in the order of the experiment; what was added to compare with stands first."""
    order: list[str] = []
    for system in run["experiment"]["systems"]:
        order += [system["name"], f"{system['name']} (best validation)"]
    added = sorted(found - set(order))
    return [*added, *(name for name in order if name in found)]


def _plain(system: str) -> str:
    return system.removesuffix(" (best validation)")


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


def _remarks(store: Store, run: int, system: str) -> list[str]:
    seeds: dict[str, list[int]] = {}
    for name, say in _SAID.items():
        for (who, seed), note in sorted(store.notes(run, name).items()):
            if who == (system if name in ("selected", "taken") else _plain(system)):
                seeds.setdefault(say(note), []).append(seed)
    own: list[str] = store.notes(run, "own").get((_plain(system), -1), [])
    return [*own, *(f"{named_seeds(of)}: {remark}" for remark, of in seeds.items())]


def _tuned(note: dict[str, Any]) -> str:
    chosen = ", ".join(f"{k}={v}" for k, v in note["chosen"].items() if k != "name")
    return f"tuned on source validation data: {chosen}"


_SAID: dict[str, Callable[[Any], str]] = {
    "tuned": _tuned,
    "selected": lambda note: f"round {note['round']}, best on source validation data",
    "reused": lambda note: f"made by other code (--reuse): {', '.join(note)}",
    "taken": lambda note: f"as measured by run {note}",
}
