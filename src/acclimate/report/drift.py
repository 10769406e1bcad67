"""Where a piece was measured otherwise than its table asks for: by overrides, or because the table has changed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from acclimate.report.measured import Part
from acclimate.report.sittings import Sitting, differing, other_settings
from acclimate.report.table import by_remark


def drifts(parts: Sequence[Part]) -> list[str]:
    """A sentence for each setting that differs, with all pieces that it is true of."""
    found: dict[str, list[str]] = {}
    for part in parts:
        said = dict.fromkeys(line for sitting in part.sittings for line in _of_sitting(part, sitting))
        found[part.piece] = list(said)
    return [f"{line}." for line in by_remark(found)]


def _of_sitting(part: Part, sitting: Sitting) -> Iterator[str]:
    given = other_settings(sitting)
    if given:
        yield f"run with `{shlex.join(given)}` on the command line"
    wanted = part.paper.pieces[part.piece].read(given).plain()
    before = {key: value for key, value in sitting["experiment"].items() if key != "seeds"}
    for setting in _settings(before, wanted):
        yield f"measured with `{setting}`, not as the table asks for today"


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


def _short(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
