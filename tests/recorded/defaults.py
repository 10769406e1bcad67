"""Write `defaults.json`: the defaults of every option, so that none changes unnoticed.

A digest covers what differs from the defaults. New methods and options are recorded by `python
tests/recorded/defaults.py`; a default that changes, or an option that goes, needs a higher `revision` of its method
first.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

from acclimate.engine.evaluate import Test
from acclimate.experiment.catalog import ROOMS
from acclimate.experiment.choice import default_options, flat
from acclimate.experiment.differences import classes_of_options, revision_of
from acclimate.experiment.experiment import Schedule
from acclimate.experiment.schema import options_of

FILE = Path(__file__).with_name("defaults.json")
Table = dict[str, dict[str, dict[str, Any]]]  # room → name → revision and defaults


def current() -> Table:
    """What the code has now."""
    rooms = {room: {name: entry.load() for name, entry in table.items()} for room, table in ROOMS.items()}
    kinds = [kind for room in rooms.values() for target in room.values() for kind in classes_of_options(target)]
    rooms["classes of options"] = {kind.__name__: kind for kind in kinds}
    rooms["experiments"] = {"test": Test, "phase": Schedule}
    return {
        room: {
            name: {"revision": 0, **revision_of(target), "defaults": _defaults(target)}
            for name, target in sorted(targets.items())
        }
        for room, targets in rooms.items()
    }


def changed(recorded: Table, found: Table) -> list[str]:
    """Defaults that changed without a higher revision."""
    problems = []
    for where, before, now in _both(recorded, found):
        if now["revision"] > before["revision"]:
            continue
        if now["revision"] < before["revision"]:
            problems.append(f"{where}: revision {before['revision']} was recorded, and now it is {now['revision']}")
        for option, was in before["defaults"].items():
            value = now["defaults"].get(option, "gone")
            if value != was or option not in now["defaults"]:
                problems.append(
                    f"{where}: the default of '{option}' was {was!r} and is {value!r}; raise `revision` of its class "
                    f"above {before['revision']}, then run python tests/recorded/defaults.py"
                )
    return problems


def unrecorded(recorded: Table, found: Table) -> list[str]:
    """Methods, options and revisions that are not in the file, or no longer in the code."""
    mine, theirs = ({(room, name) for room, names in table.items() for name in names} for table in (found, recorded))
    problems = [f"{room} {name}" for room, name in sorted(mine ^ theirs)]
    problems += [where for where, before, now in _both(recorded, found) if before != now]
    return [f"{where}: not as recorded; run python tests/recorded/defaults.py" for where in problems]


def _both(recorded: Table, found: Table) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for room, names in recorded.items():
        for name, before in names.items():
            if name in found.get(room, {}):
                yield f"{room} {name}", before, found[room][name]


def _defaults(target: Any) -> dict[str, Any]:
    """As plain data; of an option that has options itself each by its dotted key, so that it may get more of them."""
    values = options_of(target).model_construct()
    return {
        dotted: value
        for key, default in default_options(target).items()
        for dotted, value in (flat({key: default}) if is_dataclass(getattr(values, key)) else {key: default}).items()
    }


if __name__ == "__main__":
    found = current()
    if FILE.exists() and (problems := changed(json.loads(FILE.read_text(encoding="utf-8")), found)):
        sys.exit("\n".join(problems))
    FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
