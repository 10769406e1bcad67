"""The pictures of runs: accuracy over time and by step, who listened to whom, features, ATP's rates."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from acclimate.errors import AcclimateError
from acclimate.report import charts, series
from acclimate.report.charts import Grid, Group, Mark
from acclimate.report.series import Run, Shifts, Weights
from acclimate.report.table import table
from acclimate.store.database import Store

MOST_MARKS = 60  # of changing shifts; more would hide what they explain
MOST_SHIFTS = 6  # named under a title
WANTED = (
    "a picture needs streams of more than one slot (a smaller test.batch_size), an aggregator that weighs uploads "
    "(fedavg, fedamp, pfedgraph, tsa), an adapter that predicts step by step or draws features (fedicon with "
    "picture: true), or atp, whose rates are drawn"
)


def draw(
    store: Store, runs: Sequence[Run], *, slot: int | None = None, seed: int | None = None, client: int | None = None
) -> dict[str, dict[str, str]]:
    """Every picture there are data for, by run and by the name of its file; ATP's rates compare all runs in one."""
    found = {run["name"]: _one_run(store, run, slot, seed, client) for run in runs}
    if rates := _rates(store, runs):
        first = runs[0]["name"]
        found[first][f"{first}-rates{'-compared' if len(runs) > 1 else ''}.svg"] = rates
    return found


def _one_run(store: Store, run: Run, slot: int | None, seed: int | None, client: int | None) -> dict[str, str]:
    known, pictures = table(store, run), {}
    if seed is None:
        seed = known.seeds[0]
    elif seed not in known.seeds:
        raise AcclimateError(f"{known.run} has no seed {seed}; choose one of {_some('seed', known.seeds)}")
    order = [line.system for line in known.lines]
    for stream in known.streams:
        ending = re.sub(r"[^\w.+-]+", "-", stream) + ".svg"
        if accuracy := _accuracy(store, run, stream, order):
            pictures[f"{known.run}-accuracy-{ending}"] = accuracy
        if by_step := _by_step(store, run, stream, order):
            pictures[f"{known.run}-steps-{ending}"] = by_step
        for system, cloud in series.clouds(store, run, seed, stream, client).items():
            pictures[f"{known.run}-features-{system}-{ending}"] = _features(run, seed, stream, system, cloud)
        drawn = series.exchanges(store, run, seed, stream)
        if drawn:
            slots = {system: drawn[system] for system in order if system in drawn}
            exchanges = _Exchanges(store, run, seed, stream, slots, series.shifts(store, run, seed, stream))
            pictures[f"{known.run}-matrices-{ending}"] = exchanges.matrices(slot)
            pictures[f"{known.run}-weights-{ending}"] = exchanges.over_time(client)
    return pictures


def _accuracy(store: Store, run: Run, stream: str, order: Sequence[str]) -> str | None:
    curves = series.accuracy(store, run, stream)
    if max((len(values) for values in curves.values()), default=0) < 2:
        return None
    seeds = run["experiment"]["seeds"]
    marks, explained = _marks([series.shifts(store, run, s, stream) for s in (seeds if run["finished"] else seeds[:1])])
    return charts.lines(
        f"Accuracy over time, stream {stream}",
        [f"{_source(run)}. Mean over clients and {_some('seed', seeds)}.", *explained],
        {system: 100 * curves[system] for system in order if system in curves},
        marks,
        "slot",
        "accuracy in %",
    )


def _by_step(store: Store, run: Run, stream: str, order: Sequence[str]) -> str | None:
    curves = series.accuracy_by_step(store, run, stream)
    if max((len(values) for values in curves.values()), default=0) < 2:
        return None
    notes = [f"{_source(run)}. Over all images, mean over {_some('seed', run['experiment']['seeds'])}."]
    named = {system: 100 * curves[system] for system in order if system in curves}
    return charts.lines(f"Accuracy by step, stream {stream}", notes, named, [], "step", "accuracy in %")


def _features(run: Run, seed: int, stream: str, system: str, cloud: series.Cloud) -> str:
    notes = [
        f"{_source(run)}, seed {seed}, client {cloud.client}, first slot. Features are projected onto the plane "
        "in which they differ most, the same one before and after."
    ]
    panels = {"before": cloud.points[0], "after": cloud.points[1]}
    kinds = cloud.classes or [0] * cloud.points.shape[1]
    title = f"Features before and after tuning, {system}, stream {stream}"
    return charts.clouds(title, notes, panels, kinds, "class" if cloud.classes else "image")


@dataclass(frozen=True)
class _Exchanges:
    """Where matrices were drawn: in one seed and one stream of a run, by system."""

    store: Store
    run: Run
    seed: int
    stream: str
    slots: dict[str, list[int]]
    shifts: Shifts

    def matrices(self, slot: int | None) -> str:
        """Everybody's weights in one slot, by default the last one of all systems."""
        everywhere = set.intersection(*map(set, self.slots.values()))
        anywhere = sorted(set.union(*map(set, self.slots.values())))
        chosen = max(everywhere or anywhere) if slot is None else slot
        grids = [
            Grid(system, found.values, [*map(str, found.rows)], [*map(str, found.columns)])
            for system, slots in self.slots.items()
            for found in self._weights(system, {chosen}.intersection(slots))
        ]
        if not grids:
            raise AcclimateError(
                f"{self.run['name']}, stream {self.stream}: nothing was exchanged in slot {chosen}; the first exchange "
                f"was in slot {anywhere[0]}, the last in slot {anywhere[-1]} (see test.sync_every)"
            )
        shifts = [f"{name} ({_some('client', ids)})" for name, ids in series.met(self.shifts, chosen).items()]
        notes = [self._source(), *([f"Shifts: {'; '.join(shifts)}."] if len(shifts) <= MOST_SHIFTS else [])]
        title = f"Weights of all clients in slot {chosen}, stream {self.stream}"
        return charts.heatmaps(title, notes, grids, ("receiving client", "sending client"), (240, 240), square=True)

    def over_time(self, client: int | None) -> str:
        """One client's weights in all slots, by default the first client's."""
        who = min(self.shifts) if client is None else client
        marks, explained = _marks([self.shifts])
        grids = []
        for system, slots in self.slots.items():
            others, values = series.over_time(self._weights(system, slots), who)
            here = [Mark(bisect_left(slots, mark.at), mark.name) for mark in marks]
            if others:
                grids.append(Grid(system, values, [*map(str, others)], [*map(str, slots)], here))
        if not grids:
            raise AcclimateError(
                f"{self.run['name']}, stream {self.stream}: client {who} exchanged nothing; there are "
                f"{_some('client', self.shifts)}"
            )
        title = f"Weights of client {who} over time, stream {self.stream}"
        return charts.heatmaps(title, [self._source(), *explained], grids, ("sending client", "slot"), (760, 180))

    def _weights(self, system: str, slots: Iterable[int]) -> Iterator[Weights]:
        return series.weights(self.store, self.run, system, self.seed, self.stream, slots)

    def _source(self) -> str:
        return f"{_source(self.run)}, seed {self.seed}."


def _rates(store: Store, runs: Sequence[Run]) -> str | None:
    """ATP's rates by block and by kind: a series for each run, or more where its systems learnt different ones."""
    learnt = [(run, systems) for run in runs if (systems := series.learnt_rates(store, run))]
    if not learnt:
        return None
    names, by_block, by_kind = [], [], []
    for label, (run, systems) in zip(series.labels([run for run, _ in learnt]), learnt, strict=True):
        blocks = {system: found for (system, _), found in store.notes(run["id"], "blocks").items()}
        for system, seeds in systems.items():
            own = blocks.get(system.partition(", ")[0], blocks[""])  # of a system with a model of its own
            several = (label, len(learnt) > 1), (system, len(systems) > 1 or len(learnt) == 1)
            names.append(", ".join(name for name, tells in several if tells))
            by_block.append(series.grouped(seeds, series.blocks_of(seeds[0], own)))
            by_kind.append(series.grouped(seeds, series.kinds_of(seeds[0])))
    panels = {
        "by block": _groups(by_block, dict.fromkeys(chain.from_iterable(by_block))),
        "by kind of module": _groups(by_kind, series.KINDS),
    }
    notes = [f"{_source(*(run for run, _ in learnt))}. A bar is the mean over its modules and all seeds."]
    if any(len(seeds) > 1 for _, systems in learnt for seeds in systems.values()):
        notes.append("Whiskers: standard deviation over seeds.")
    return charts.bars("Adaptation rates learnt by ATP", notes, panels, names, "mean rate")


def _groups(found: Sequence[Mapping[str, tuple[float, float]]], order: Iterable[str]) -> list[Group]:
    return [Group(name, [one.get(name) for one in found]) for name in order if any(name in one for one in found)]


def _marks(shifts: Sequence[Shifts]) -> tuple[list[Mark], list[str]]:
    """Where shifts change, in one or more seeds, and a sentence about it; nothing where they never do."""
    named, changes, shared = series.timetable(shifts[0])
    if any(series.timetable(other).changes != changes for other in shifts):
        return [], ["Shifts change in other slots with other seeds and are not marked."]
    if len(changes) > MOST_MARKS:
        return [], [f"Shifts change in {len(changes) - 1} slots, too many to mark."]
    if len(changes) == 1:
        return [], []
    whose = "where the shift changes, with its name" if shared else f"where any shift changes; names: client {named}'s"
    return [Mark(slot, name) for slot, name in changes.items()], [f"Vertical lines: {whose}."]


def _source(*runs: Run) -> str:
    names = [run["name"] if run["finished"] else f"{run['name']} (not finished)" for run in runs]
    return f"Run{'s' * (len(runs) > 1)} {', '.join(names)}"


def _some(what: str, numbers: Iterable[int]) -> str:
    """Many numbers in few words.

    >>> _some("client", [1, 2, 3, 5]), _some("seed", [0])
    ('clients 1–3, 5', 'seed 0')
    """
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    words = ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}–{p[-1]}" for p in parts)
    return f"{what} {words}" if sum(map(len, parts)) == 1 else f"{what}s {words}"
