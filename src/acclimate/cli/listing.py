"""What `acclimate list` knows: everything with a name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from acclimate.cli import runs as of_runs
from acclimate.cli.data import listed as data
from acclimate.errors import AcclimateError, nearest

Rows = list[dict[str, Any]]
KINDS = (
    "methods, training, calibration, phases, adapters, aggregators, terms, systems, scenarios, models, data, "
    "experiments, tables or runs"
)


def rows(what: str, runs: Path) -> Rows:
    """Everything of a kind, as rows with the same keys."""
    from acclimate.experiment.catalog import ROOMS

    kinds: dict[str, Callable[[], Rows]] = {room: lambda room=room: _entries(room) for room in ROOMS}  # type: ignore[misc]
    kinds |= {
        "methods": lambda: _entries("training", "calibration", "adapters", "aggregators", "terms"),
        "phases": lambda: _entries("training", "calibration"),
        "systems": _systems,
        "data": data,
        "experiments": _experiments,
        "tables": _tables,
        "runs": lambda: of_runs.listed(runs),
    }
    if what not in kinds:
        raise AcclimateError(f"list what? '{what}' is unknown; {nearest(what, kinds)}")
    return kinds[what]()


def _entries(*rooms: str) -> Rows:
    from acclimate.experiment.catalog import ROOMS

    return [
        {"name": name, "room": room, "summary": entry.summary, "paper": entry.paper}
        for room in rooms
        for name, entry in ROOMS[room].items()
    ]


def _systems() -> Rows:
    """Every adapter is a system by itself; some have phases of their own."""
    from acclimate.experiment.catalog import ADAPTERS, SYSTEMS

    found = []
    for name in dict.fromkeys([*SYSTEMS, *ADAPTERS]):
        parts = SYSTEMS.get(name, {"adapter": name})
        adapter = parts["adapter"] if isinstance(parts["adapter"], str) else parts["adapter"]["name"]
        phases = ", ".join(f"{phase['name']}, rounds: {phase['rounds']}" for phase in parts.get("phases", []))
        found.append({"name": name, "own phases": phases, "adapter": adapter, "summary": ADAPTERS[adapter].summary})
    return found


def _experiments() -> Rows:
    from acclimate.experiment.catalog import shipped

    return [{"name": name, "about": _first_comment(path)} for name, path in shipped().items()]


def _first_comment(path: Path) -> str:
    """The sentence that a shipped experiment begins with."""
    lines = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    first, stop, _ = " ".join(lines).partition(". ")
    return first.removesuffix(".") if stop or lines else ""


def _tables() -> Rows:
    from acclimate.experiment.published import outlines

    return [{"name": o.name, "title": o.title, "paper": o.paper, "pieces": ", ".join(o.pieces)} for o in outlines()]
