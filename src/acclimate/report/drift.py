"""Where a piece was measured otherwise than its table asks for: by overrides, or because the table has changed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from acclimate.report.measured import Part
from acclimate.report.table import by_remark


def drifts(parts: Sequence[Part]) -> list[str]:
    """A sentence for each setting that differs, with all pieces that it is true of."""
    found: dict[str, list[str]] = {}
    for part in parts:
        given: list[str] = part.found.get("overrides", [])
        wanted = part.paper.pieces[part.piece].read(given).plain()
        found[part.piece] = [f"run with `{shlex.join(given)}` on the command line"] if given else []
        found[part.piece] += [
            f"measured with `{setting}`, not as the table asks for today"
            for setting in _settings(part.found["experiment"], wanted)
        ]
    return [f"{line}." for line in by_remark(found)]


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


def _settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """As overrides are written; what several systems share is said once, for all of them."""
    systems: dict[tuple[str, str], list[str]] = {}
    for path, value in differing(before, now):
        of_system = path[0] == "systems" and len(path) > 2
        setting = f"{'.'.join(path[2:] if of_system else path)}={_short(value)}"
        systems.setdefault((setting, "systems." if of_system else ""), []).append(path[1] if of_system else "")
    return [
        f"{prefix}{'|'.join(names)}{'.' if prefix else ''}{setting}" for (setting, prefix), names in systems.items()
    ]


def _keyed(value: Any) -> Any:
    """A list of mappings as a mapping: by name, or by place where a name stands for two of them."""
    if not isinstance(value, list) or not value or not all(isinstance(item, Mapping) for item in value):
        return value
    names = [str(item.get("name")) for item in value]
    unique = len(set(names)) == len(names)
    return dict(zip(names if unique else map(str, range(len(value))), value, strict=True))


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
