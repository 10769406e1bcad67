"""What a method, scenario or model is: its own words, its options and their defaults."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from acclimate.experiment.catalog import Entry
from acclimate.experiment.schema import options_of


def describe(name: str, room: str, entry: Entry) -> dict[str, Any]:
    """A catalog entry as plain data, with a text to print."""
    target = entry.load()
    fields = options_of(target).model_fields
    options = {
        key: {
            "type": _type(field.annotation, field.metadata),
            "default": _plain(field.get_default(call_default_factory=True)),
        }
        for key, field in fields.items()
    }
    about = [inspect.getdoc(sys.modules[target.__module__]) or "", inspect.getdoc(target) or ""]
    lines = [f"{name} ({room})", "", *about, "", f"in {target.__module__}"]
    if getattr(target, "needs", ()):
        lines.append(f"needs: {', '.join(target.needs)}")
    if options:
        width = max(map(len, options))
        lines += ["", "options:"]
        lines += [f"  {key:<{width}}  {o['type']}, default {o['default']}" for key, o in options.items()]
    if entry.grid:
        lines.append(f"tune: true tries {dict(entry.grid)}")
    return {"name": name, "room": room, "paper": entry.paper, "options": options, "text": "\n".join(lines)}


def _type(annotation: Any, metadata: list[Any]) -> str:
    text = annotation.__name__ if inspect.isclass(annotation) else str(annotation).replace("typing.", "")
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    limits = [
        f"{sign} {getattr(item, key)}"
        for item in metadata
        for key, sign in signs.items()
        if getattr(item, key, None) is not None
    ]
    return f"{text} {', '.join(limits)}" if limits else text


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str | list) else str(value)
