"""What a method, scenario or model is: its own words, its options and their defaults."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml

from acclimate.experiment.catalog import Entry
from acclimate.experiment.choice import choose, default_options
from acclimate.experiment.schema import Nested, options_of


def describe(name: str, room: str, entry: Entry) -> dict[str, Any]:
    """A catalog entry as plain data, with a text to print."""
    target = entry.load()
    model = options_of(target)
    defaults = default_options(target)
    options = {
        key: {
            "type": _type(field.annotation, field.metadata),
            "required": field.is_required(),
            "default": defaults.get(key),
        }
        for key, field in model.model_fields.items()
    }
    about = [inspect.getdoc(sys.modules[target.__module__]) or "", inspect.getdoc(target) or ""]
    lines = [f"{name} ({room})", "", *about, "", f"in {target.__module__}"]
    lines += _knowledge(name, entry)
    if options:
        width = max(map(len, options))
        lines += ["", "options:"]
        for key, o in options.items():
            otherwise = "required" if o["required"] else f"default {_yaml(o['default'])}"
            lines.append(f"  {key:<{width}}  {o['type']}, {otherwise}")
    if entry.grid:
        lines.append(f"tune: true tries {dict(entry.grid)}")
    return {"name": name, "room": room, "paper": entry.paper, "options": options, "text": "\n".join(lines)}


def _knowledge(name: str, entry: Entry) -> list[str]:
    """What a method needs and what it exports, as it is without options."""
    chosen, _ = choose(name, name, {name: entry})
    made = chosen and chosen.made
    said = {word: list(getattr(made, word, ())) for word in ("needs", "exports")}
    own = getattr(made, "personal", ())
    said["exports"] = [f"{export} (each client its own)" if export in own else export for export in said["exports"]]
    return [f"{word}: {', '.join(names)}" for word, names in said.items() if names]


def _type(annotation: Any, limits: Iterable[Any] = ()) -> str:
    """A type in the words of an experiment file, such as `int ≥ 1 | null`."""
    for nested in (limit for limit in limits if isinstance(limit, Nested)):
        return f"{' | '.join(nested.table)} (or a mapping with name and options){' | null' * nested.optional}"
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(parts[0], parts[1:])
    if origin is Literal:
        text = " | ".join(map(str, parts))
    elif origin in (Union, UnionType):
        text = " | ".join(map(_type, parts))
    elif origin in (tuple, list, Sequence):
        text = f"list of {_type(parts[0])}"
    elif origin is Mapping:
        text = f"mapping of {_type(parts[0])} to {_type(parts[1])}"
    elif is_dataclass(annotation):
        text = f"mapping with {', '.join(field.name for field in fields(annotation))}"
    else:
        text = "null" if annotation is type(None) else annotation.__name__
    signs = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    found = [(sign, getattr(limit, key, None)) for limit in limits for key, sign in signs.items()]
    bounds = ", ".join(f"{sign} {value}" for sign, value in found if value is not None)
    return f"{text} {bounds}" if bounds else text


def _yaml(value: Any) -> str:
    """A default as an experiment file would have it."""
    return (
        str(yaml.safe_dump(value, default_flow_style=True, width=1000, sort_keys=False)).removesuffix("...\n").strip()
    )
