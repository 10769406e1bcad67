"""The numbers behind the pictures, from the store: accuracy over time and by step, who listened to whom, rates."""

from __future__ import annotations

import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from acclimate import trees
from acclimate.store.database import Store

KINDS = ("conv/linear weight", "bias", "norm weight", "norm bias", "running mean", "running variance", "other")

Run = dict[str, Any]  # one of `store.runs()`
Values = NDArray[np.float64]
Shifts = dict[int, dict[int, str]]  # client → slot → shift
Rates = Mapping[str, float]  # by module


class Timetable(NamedTuple):
    """When shifts change."""

    named: int  # the client whose shifts have their names here
    changes: dict[int, str]  # slots where any client's shift changes, the first one included; '' where not the named's
    shared: bool  # whether all clients meet the same shift all the time


class Weights(NamedTuple):
    """Who listened to whom in one slot: row i says how client rows[i] mixed what columns sent."""

    rows: list[int]
    columns: list[int]
    values: Values


def accuracy(store: Store, run: Run, stream: str) -> dict[str, Values]:
    """The mean over clients and seeds of the accuracy in each slot, by system; not a number where nothing is known."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for system, slot, value in store.select(
        "SELECT system, slot, avg(correct / count) FROM (SELECT system, seed, client, slot, "
        "sum(CASE metric WHEN 'correct' THEN value ELSE 0 END) AS correct, "
        "sum(CASE metric WHEN 'count' THEN value ELSE 0 END) AS count FROM row WHERE run = ? AND stream = ? "
        "AND phase = 'test' AND slot >= 0 AND metric IN ('correct', 'count') GROUP BY system, seed, client, slot) "
        "WHERE count > 0 GROUP BY system, slot",
        run["id"],
        stream,
    ):
        found[system][slot] = value
    return {
        system: np.array([slots.get(slot, math.nan) for slot in range(max(slots) + 1)])
        for system, slots in found.items()
    }


def accuracy_by_step(store: Store, run: Run, stream: str) -> dict[str, Values]:
    """The accuracy after each step of adaptation, over all images and the mean over seeds, by system.

    From figures with `correct` (one count for each step) and `count`, which the engine writes where the labels are. A
    batch that took fewer steps than others stays where it was.
    """
    found: dict[str, dict[int, list[tuple[Values, float]]]] = defaultdict(lambda: defaultdict(list))
    for system, seed, content in store.select(
        "SELECT system, seed, content FROM figure WHERE run = ? AND stream = ? AND phase = 'test' AND client >= 0 "
        "ORDER BY system, seed, client, slot",
        run["id"],
        stream,
    ):
        drawn = trees.load(content)
        if "correct" in drawn and drawn["count"] > 0:
            correct = np.asarray(drawn["correct"], dtype=np.float64)
            found[system][seed].append((correct, float(drawn["count"])))
    return {system: np.mean([*map(_by_step, _alike(seeds.values()))], axis=0) for system, seeds in found.items()}


class Cloud(NamedTuple):
    """One client's features before and after adaptation, in two dimensions."""

    client: int
    points: Values  # [2, images, 2]
    classes: list[int]  # of the images; none where the run does not know them


def clouds(store: Store, run: Run, seed: int, stream: str, client: int | None) -> dict[str, Cloud]:
    """Features of one client, by default the first that has some, in its first slot, by system."""
    found: dict[str, Cloud] = {}
    for system, who, content in store.select(
        "SELECT system, client, content FROM figure WHERE run = ? AND seed = ? AND stream = ? AND phase = 'test' "
        "AND client >= 0 ORDER BY system, client, slot",
        run["id"],
        seed,
        stream,
    ):
        if system in found or client not in (None, who):
            continue
        drawn = trees.load(content)
        if "features" in drawn:
            points = np.asarray(drawn["features"], dtype=np.float64)
            found[system] = Cloud(who, points, drawn["classes"].tolist() if "classes" in drawn else [])
    return found


def shifts(store: Store, run: Run, seed: int, stream: str) -> Shifts:
    """Who met what when, from what was scored."""
    found: Shifts = defaultdict(dict)
    for client, slot, shift in store.select(
        "SELECT DISTINCT client, slot, shift FROM row WHERE run = ? AND seed = ? AND stream = ? AND phase = 'test' "
        "AND slot >= 0 AND metric = 'count' ORDER BY client, slot",
        run["id"],
        seed,
        stream,
    ):
        found[client][slot] = shift
    return dict(found)


def timetable(shifts: Shifts) -> Timetable:
    """When shifts change.

    >>> timetable({1: {0: "fog", 1: "fog", 2: "snow"}, 2: {0: "snow", 1: "fog", 2: "fog"}})
    Timetable(named=1, changes={0: 'fog', 1: '', 2: 'snow'}, shared=False)
    """
    changes = {client: {0, *_changes(met)} for client, met in shifts.items()}
    named = min(shifts)
    pairs = set(chain.from_iterable(met.items() for met in shifts.values()))
    return Timetable(
        named,
        {t: shifts[named].get(t, "") if t in changes[named] else "" for t in sorted(set.union(*changes.values()))},
        shared=len(pairs) == len(dict(pairs)),
    )


def met(shifts: Shifts, slot: int) -> dict[str, list[int]]:
    """Which clients met which shift in a slot."""
    found: dict[str, list[int]] = defaultdict(list)
    for client, slots in shifts.items():
        if slot in slots:
            found[slots[slot]].append(client)
    return dict(found)


def exchanges(store: Store, run: Run, seed: int, stream: str) -> dict[str, list[int]]:
    """The slots in which systems drew a matrix of weights."""
    found: dict[str, list[int]] = defaultdict(list)
    where = "run = ? AND seed = ? AND stream = ? AND phase = 'test' AND client = -1"
    for system, slot in store.select(
        f"SELECT system, slot FROM figure WHERE {where} ORDER BY slot", run["id"], seed, stream
    ):
        found[system].append(slot)
    return {s: slots for s, slots in found.items() if "weights" in _drawn(store, run, s, seed, stream, slots[0])}


def weights(store: Store, run: Run, system: str, seed: int, stream: str, slots: Iterable[int]) -> Iterator[Weights]:
    """The matrices of some slots, one at a time. A figure that names no clients is of those who sent something."""
    senders: dict[int, list[int]] = defaultdict(list)
    for slot, client in store.select(
        "SELECT slot, client FROM row WHERE run = ? AND system = ? AND seed = ? AND stream = ? AND phase = 'test' "
        "AND metric = 'bytes_up' ORDER BY client",
        run["id"],
        system,
        seed,
        stream,
    ):
        senders[slot].append(client)
    for slot in slots:
        drawn = _drawn(store, run, system, seed, stream, slot)
        rows = drawn["clients"].tolist() if "clients" in drawn else senders[slot]
        columns = drawn["columns"].tolist() if "columns" in drawn else rows
        yield Weights(rows, columns, drawn["weights"].double().numpy())


def over_time(matrices: Iterable[Weights], client: int) -> tuple[list[int], Values]:
    """One client's row of many matrices as columns, and whose weights the rows of the result are."""
    heard = [
        dict(zip(w.columns, w.values[w.rows.index(client)].tolist(), strict=True)) if client in w.rows else {}
        for w in matrices
    ]
    others = sorted(set(chain.from_iterable(heard)))
    return others, np.array([[row.get(other, math.nan) for row in heard] for other in others])


def learnt_rates(store: Store, run: Run) -> dict[str, list[Rates]]:
    """ATP's rates of each seed, by system; systems that share them are one."""
    found: dict[str, list[Rates]] = defaultdict(list)
    for (system, _), rates in sorted(store.notes(run["id"], "knowledge rates").items()):
        found[system].append(rates)
    together: dict[str, list[str]] = defaultdict(list)
    for system, each in found.items():
        together[repr(each)].append(system)
    return {", ".join(systems): found[systems[0]] for systems in together.values()}


def blocks_of(modules: Iterable[str], blocks: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The block of every module. Statistics of a norm are where its scale is, or, without one, where they follow.

    >>> blocks_of(["0.weight", "1.running_mean", "1.weight"], {"0": ["0.weight"], "late": ["1.weight"]})
    {'0.weight': '0', '1.running_mean': 'late', '1.weight': 'late'}
    """
    of = {name: block for block, names in blocks.items() for name in names}
    found, current = {}, next(iter(blocks))
    for module in modules:
        current = of.get(module) or of.get(f"{module.rpartition('.')[0]}.weight", current)
        found[module] = current
    return found


def kinds_of(modules: Iterable[str]) -> dict[str, str]:
    """What every module is, by its name: a norm has statistics, or is called bn1, norm2 and the like.

    >>> kinds_of(["conv1.weight", "bn1.weight", "head.bias"])
    {'conv1.weight': 'conv/linear weight', 'bn1.weight': 'norm weight', 'head.bias': 'bias'}
    """
    names = list(modules)
    norms = {name.removesuffix(".running_mean") for name in names if name.endswith(".running_mean")}
    found = {}
    for name in names:
        owner, _, last = name.rpartition(".")
        norm = owner in norms or re.search(r"(^|[._])(bn|gn|ln|norm)\d*$", owner) is not None
        plain = {"weight": KINDS[2 * norm], "bias": KINDS[2 * norm + 1]}
        found[name] = {**plain, "running_mean": KINDS[4], "running_var": KINDS[5]}.get(last, KINDS[6])
    return found


def grouped(seeds: Sequence[Rates], group: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """The mean rate of each group of modules: its mean and standard deviation (0 of one) over seeds."""
    members: dict[str, list[str]] = defaultdict(list)
    for module, name in group.items():
        members[name].append(module)
    means = {
        name: [statistics.fmean(rates[module] for module in modules) for rates in seeds]
        for name, modules in members.items()
    }
    return {k: (statistics.fmean(each), statistics.stdev(each) if len(each) > 1 else 0.0) for k, each in means.items()}


def labels(runs: Sequence[Run]) -> list[str]:
    """What distinguishes each run: the first key of its experiment that tells all apart, else all keys that differ.

    >>> runs = [{"name": name, "experiment": {"name": name, "scenario": {"shift": name}}} for name in "ab"]
    >>> labels(runs)
    ['scenario.shift=a', 'scenario.shift=b']
    """
    plain = [_flat({**run["experiment"], "name": None}) for run in runs]
    keys = [key for key in dict.fromkeys(chain(*plain)) if len({one.get(key) for one in plain}) > 1]
    telling = [key for key in keys if len({one.get(key) for one in plain}) == len(runs)]
    chosen = telling[:1] or keys
    made = [", ".join(f"{key}={one.get(key, 'none')}" for key in chosen) for one in plain]
    return made if len(set(made)) == len(runs) and len(chosen) <= 3 else [run["name"] for run in runs]


def _alike(seeds: Iterable[Sequence[tuple[Values, float]]]) -> list[list[tuple[Values, float]]]:
    """The batches of every seed, all with as many steps as the longest."""
    every = list(seeds)
    steps = max(len(correct) for batches in every for correct, _ in batches)
    return [[(np.pad(c, (0, steps - len(c)), mode="edge"), count) for c, count in batches] for batches in every]


def _by_step(batches: Sequence[tuple[Values, float]]) -> Values:
    total: Values = np.sum([correct for correct, _ in batches], axis=0) / sum(count for _, count in batches)
    return total


def _changes(met: Mapping[int, str]) -> Iterator[int]:
    return (t for before, t in pairwise(met) if met[before] != met[t])


def _drawn(store: Store, run: Run, system: str, seed: int, stream: str, slot: int) -> dict[str, Any]:
    ((content,),) = store.select(
        "SELECT content FROM figure WHERE run = ? AND system = ? AND seed = ? AND phase = 'test' AND client = -1 "
        "AND stream = ? AND slot = ?",
        run["id"],
        system,
        seed,
        stream,
        slot,
    )
    drawn: dict[str, Any] = trees.load(content)
    return drawn


def _flat(plain: Any, path: str = "") -> dict[str, str]:
    """Nested plain data as dotted keys, as overrides are written."""
    if isinstance(plain, dict):
        items = list(plain.items())
    elif isinstance(plain, list) and any(isinstance(item, dict) for item in plain):
        items = [(item.get("name", at), item) for at, item in enumerate(plain)]
    else:
        return {path: str(plain)}
    return {k: v for key, item in items for k, v in _flat(item, f"{path}.{key}" if path else str(key)).items()}
