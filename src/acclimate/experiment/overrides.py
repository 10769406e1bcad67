"""Dotted overrides such as `phases.0.rounds=50`, written into the raw experiment before it is read."""

from __future__ import annotations

from typing import Any

from acclimate.errors import nearest
from acclimate.experiment.written import Unreadable, load, short


def override(raw: dict[str, Any], text: str) -> list[str]:
    """Set one key, at any depth; a place in a list is its number or the name of the thing there. What is wrong, if any.

    A list of names instead of another list picks from that: whoever was there by that name stays as it was.

    >>> raw = {"systems": [{"name": "mine", "aggregator": "fedamp"}, {"name": "other"}]}
    >>> override(raw, "systems.mine.aggregator.sigma=2"), override(raw, "systems=[mine, tent]")
    ([], [])
    >>> raw
    {'systems': [{'name': 'mine', 'aggregator': {'name': 'fedamp', 'sigma': 2}}, 'tent']}
    """
    path, equals, written = text.partition("=")
    if not equals:
        return [f"override '{short(text)}': expected KEY=VALUE, such as seeds=[0,1] or phases.0.rounds=50"]
    try:
        value = load(written)
    except Unreadable as error:
        return [f"override '{short(text)}': {error}"]
    *parents, last = path.split(".")
    place: Any = raw
    for depth, part in enumerate([*parents, last]):
        key = _place(place, part)
        if key is None:
            where = ".".join(parents[:depth])
            return [
                f"override '{short(text)}': there is no '{short(part)}' in '{where}'; {nearest(part, _places(place))}"
            ]
        if depth == len(parents):
            place[key] = _picked(place.get(key) if isinstance(place, dict) else place[key], value)
        else:
            if isinstance(place, dict) and place.get(key) is None:
                place[key] = {}
            elif isinstance(place[key], str):
                place[key] = {"name": place[key]}  # a bare name may get options
            place = place[key]
    return []


def _picked(before: Any, value: Any) -> Any:
    """A list of names, with what was said of those that were there."""
    if not (isinstance(before, list) and isinstance(value, list)):
        return value
    named = {item["name"]: item for item in before if isinstance(item, dict) and isinstance(item.get("name"), str)}
    return [named.get(item, item) if isinstance(item, str) else item for item in value]


def _place(container: Any, part: str) -> Any:
    """The key or position of `part` in a mapping or list; None if there is none."""
    if isinstance(container, dict):
        return part
    if isinstance(container, list):
        if part.isascii() and part.isdigit() and len(part) < 10 and int(part) < len(container):
            return int(part)
        names = [item.get("name") if isinstance(item, dict) else item for item in container]
        return names.index(part) if part in names else None
    return None


def _places(container: Any) -> list[str]:
    if isinstance(container, list):
        names = [item.get("name") if isinstance(item, dict) else item for item in container]
        return [*map(str, range(len(container))), *(str(name) for name in names)]
    return list(map(str, container)) if isinstance(container, dict) else []
