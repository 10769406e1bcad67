"""Sittings: a piece of a table may be measured bit by bit, other seeds or systems each time, on machines that are gone.

A sitting is what a results file has of one run (`measured`). No row mixes settings or code: what a new sitting has
measured again, or otherwise, takes the place of what earlier ones have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

Sitting = dict[str, Any]
System = dict[str, Any]  # of a sitting: seeds, and for each stream a cell with a value per seed
PARTS = ("seeds=", "systems=")  # overrides that choose a part of a piece and change nothing about it


def joined(earlier: Sequence[Sitting], new: Sitting) -> list[Sitting]:
    """The sittings of a piece with one more, the newest last; what was measured later counts."""
    found: list[Sitting] = []
    alike = [one for one in earlier if _alike(one, new)]
    for one in sorted([*alike, _named(new)], key=lambda sitting: sitting.get("finished") or ""):
        left = [_without(before, one) for before in found]
        found = [*(before for before in left if before["systems"]), one]
    return found


def other_settings(sitting: Sitting) -> list[str]:
    """The overrides of a sitting that are more than a choice of seeds and systems."""
    return [override for override in sitting.get("overrides", []) if not override.startswith(PARTS)]


def together(systems: Sequence[System]) -> System:
    """One system of several sittings, with the seeds of all of them."""
    if len(systems) == 1:
        return systems[0]
    cells = [system["streams"] for system in systems]
    streams = {
        stream: {
            key: _merged([(s["seeds"], of[stream][key]) for s, of in zip(systems, cells, strict=True)]) for key in cell
        }
        for stream, cell in cells[0].items()
    }
    remarks = list(dict.fromkeys(remark for system in systems for remark in system["remarks"]))
    return {**systems[-1], "seeds": sorted(all_seeds(systems)), "streams": streams, "remarks": remarks}


def all_seeds(systems: Iterable[System]) -> set[int]:
    """The seeds of any of them."""
    return {seed for system in systems for seed in system["seeds"]}


def differing(before: Any, now: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Places in plain data that had another value before, and that value.

    What is new has a default with which nothing changes, so it makes no difference; what is gone does if it was set.

    >>> list(differing({"lr": 0.1, "mu": None, "of": {"name": "em"}}, {"lr": 0.2, "of": {"name": "em", "steps": 1}}))
    [(('lr',), 0.1)]
    """
    before, now = _keyed(before), _keyed(now)
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key, value in before.items():
            if key in now:
                yield from differing(value, now[key], (*path, key))
            elif value:
                yield (*path, key), value
    elif before != now and not (isinstance(now, Mapping) and now.get("name") == before):  # a bare name got options
        yield path, before


def _merged(parts: Sequence[tuple[Sequence[int], Any]]) -> Any:
    """What several sittings have of one thing: values per seed in the order of the seeds, mappings key by key.

    A group that some seed lacks has fewer values than seeds, whose order then means nothing.

    >>> _merged([([0, 2], [0.5, 0.7]), ([1], [0.6])]), _merged([([0], {"fog": [0.5]}), ([1], {"fog": [0.6]})])
    ([0.5, 0.6, 0.7], {'fog': [0.5, 0.6]})
    """
    if isinstance(parts[0][1], Mapping):
        keys = dict.fromkeys(key for _, values in parts for key in values)
        return {key: _merged([(seeds, values[key]) for seeds, values in parts if key in values]) for key in keys}
    if not isinstance(parts[0][1], list):
        return parts[-1][1]  # a client's accuracy, which only one of them has
    pairs = [pair for seeds, values in parts for pair in zip(seeds, values, strict=False)]
    return [value for _, value in sorted(pairs, key=itemgetter(0))]


def _alike(one: Sitting, other: Sitting) -> bool:
    """Whether both were measured with the same settings, but for those of single systems."""
    then, now = ({k: v for k, v in s["experiment"].items() if k not in ("seeds", "systems")} for s in (one, other))
    return other_settings(one) == other_settings(other) and not any(differing(then, now))


def _named(sitting: Sitting) -> Sitting:
    """Of a choice of systems those that it names: what was added to compare with need not be the whole table's."""
    if not any(override.startswith("systems=") for override in sitting.get("overrides", [])):
        return sitting
    names = {system["name"] for system in sitting["experiment"]["systems"]}
    return {**sitting, "systems": {title: of for title, of in sitting["systems"].items() if of["of"] in names}}


def _without(earlier: Sitting, new: Sitting) -> Sitting:
    """What is left of an earlier sitting."""
    systems = dict(_left(earlier, new))
    chosen = [
        s for s in earlier["experiment"]["systems"] if any(system["of"] == s["name"] for system in systems.values())
    ]
    return {**earlier, "systems": systems, "experiment": {**earlier["experiment"], "systems": chosen}}


def _left(earlier: Sitting, new: Sitting) -> Iterator[tuple[str, System]]:
    for title, system in earlier["systems"].items():
        again = new["systems"].get(title)
        if again is None:
            yield title, system
        elif _same_code(system, again) and not any(differing(_settings(earlier, system), _settings(new, system))):
            kept = [seed for seed in system["seeds"] if seed not in again["seeds"]]
            if kept and (cut := _cut(system, kept)):
                yield title, cut


def _settings(sitting: Sitting, system: System) -> dict[str, Any]:
    """Those of a system; what was only added to compare with has none of its own."""
    return next((one for one in sitting["experiment"]["systems"] if one["name"] == system["of"]), {})


def _same_code(one: System, other: System) -> bool:
    """Results of earlier code do not say what code it was, and are taken for the same."""
    return not one.get("code") or one["code"] == other.get("code")


def _cut(system: System, seeds: Sequence[int]) -> System | None:
    """Some seeds of a system; None where its values cannot be told apart."""
    places = [system["seeds"].index(seed) for seed in seeds]

    def of(value: Any) -> Any:
        if isinstance(value, list):
            if len(value) != len(system["seeds"]):
                raise LookupError
            return [value[place] for place in places]
        return {key: of(inner) for key, inner in value.items()}

    def cell(full: Mapping[str, Any]) -> dict[str, Any]:
        clients = {seed: by for seed, by in full["clients"].items() if int(seed) in seeds}
        return {**{key: of(value) for key, value in full.items() if key != "clients"}, "clients": clients}

    try:
        streams = {stream: cell(full) for stream, full in system["streams"].items()}
    except LookupError:
        return None
    return {**system, "seeds": list(seeds), "streams": streams}


def _keyed(value: Any) -> Any:
    """A list of mappings as a mapping: by name, or by place where a name stands for two of them."""
    if not isinstance(value, list) or not value or not all(isinstance(item, Mapping) for item in value):
        return value
    names = [str(item.get("name")) for item in value]
    unique = len(set(names)) == len(names)
    return dict(zip(names if unique else map(str, range(len(value))), value, strict=True))
