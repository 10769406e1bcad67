"""When shifts change, and which clients meet the same ones together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

from acclimate.report.pictures.picture import some
from acclimate.store.records import Shifts
from acclimate.store.run import Run

MOST_GROUPS = 8
EVERYBODY = "all clients"


class Timetable(NamedTuple):
    """When shifts change."""

    named: int  # the client whose shifts have their names here
    changes: dict[int, str]  # slots where any client's shift changes, the first one included; '' where not the named's
    shared: bool  # whether all clients meet the same shift all the time


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


def groups(run: Run, seeds: Sequence[int], by_seed: Sequence[Shifts]) -> dict[str, dict[int, set[int]]]:
    """Group → seed → clients: those of the scenario, else those who meet the same all the time; none if too many."""
    named = run.groups()
    if any(len(set(of.values())) > 1 for of in named.values()):
        keys = {seed: {client: named.get(seed, {}).get(client, "") for client in shifts}
                for seed, shifts in zip(seeds, by_seed, strict=True)}  # fmt: skip
    else:
        keys = {seed: _alike(shifts) for seed, shifts in zip(seeds, by_seed, strict=True)}
    found: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for seed, of in keys.items():
        for client, name in of.items():
            found[name][seed].add(client)
    whole = {name: dict(of) for name, of in found.items() if name and len(of) == len(seeds)}
    return whole if 1 < len(whole) == len(found) <= MOST_GROUPS else {}


def _alike(shifts: Shifts) -> dict[int, str]:
    """Client → the shift it always meets, else the clients with the same changes."""
    together: dict[tuple[tuple[int, str], ...], list[int]] = defaultdict(list)
    for client, slots in shifts.items():
        begin = [slots[min(slots)], *(slots[t] for t in _changes(slots))]
        together[tuple(zip([0, *_changes(slots)], begin, strict=True))].append(client)
    return {
        client: changes[0][1] if len(changes) == 1 else some("client", clients)
        for changes, clients in together.items()
        for client in clients
    }


def _changes(met: Mapping[int, str]) -> Iterator[int]:
    return (t for before, t in pairwise(met) if met[before] != met[t])
