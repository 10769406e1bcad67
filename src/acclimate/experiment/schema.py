"""The options of a class or function as a pydantic model, and messages that name the key."""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo

from acclimate.contracts import Adapter
from acclimate.errors import nearest
from acclimate.experiment.catalog import NESTED, Entry
from acclimate.experiment.written import short

# Arguments that the engine fills in, never the experiment.
GIVEN = {"self", "net", "classes", "num_classes", "shape", "normalise"}


@dataclass(frozen=True)
class Nested:
    """Marks an option that is itself something of the catalog."""

    table: Mapping[str, Entry]
    optional: bool  # whether it may be null


@cache
def options_of(target: Callable[..., Any]) -> type[BaseModel]:
    """A pydantic model with one field per option; one that is a method may be anything, and carries a `Nested`."""
    # What an adapter's constructor takes besides options; what an instance needs is the business of its recipe.
    knowledge = set(target.needs) if inspect.isclass(target) and issubclass(target, Adapter) else set()
    # A dataclass may inherit fields of other modules, whose names only the class as a whole can resolve.
    plain_class = inspect.isclass(target) and not dataclasses.is_dataclass(target)
    hints = typing.get_type_hints(target.__init__ if plain_class else target, include_extras=True)
    own = dataclasses.fields(target) if dataclasses.is_dataclass(target) else ()
    factories = {f.name: f.default_factory for f in own if f.default_factory is not dataclasses.MISSING}
    fields: dict[str, Any] = {}
    for name, parameter in inspect.signature(target).parameters.items():
        if name in GIVEN | knowledge or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        default = ... if parameter.default is parameter.empty else parameter.default
        made, hint = factories.get(name), hints.get(name, Any)
        nested = _nested_in(hint)
        fields[name] = (Annotated[Any, nested] if nested else hint, Field(default_factory=made) if made else default)
    return create_model(
        getattr(target, "__name__", "Options"),
        __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=True, protected_namespaces=()),
        **fields,
    )


def nested_of(model: type[BaseModel]) -> dict[str, Nested]:
    """The options that are methods."""
    marks = {name: [m for m in field.metadata if isinstance(m, Nested)] for name, field in model.model_fields.items()}
    return {name: found[0] for name, found in marks.items() if found}


def check(
    target: Callable[..., Any], raw: Mapping[str, Any], path: str, also: Sequence[str] = ()
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """The options as Python values, as plain data with all defaults (methods left out), and every problem found.

    `also`: keys that stand beside the options and were checked elsewhere, for suggestions.
    """
    model = options_of(target)
    try:
        found = model(**{str(key): value for key, value in raw.items()})
    except ValidationError as error:
        return {}, {}, problems(error, path, model, also)
    values = {name: getattr(found, name) for name in model.model_fields}
    return values, found.model_dump(mode="json", exclude=set(nested_of(model))), []


def problems(error: ValidationError, path: str, model: type[BaseModel], also: Sequence[str]) -> list[str]:
    """One line per key: where, what was expected, what was found."""
    expected: dict[str, list[str]] = {}
    found: dict[str, Any] = {}
    for item in error.errors(include_url=False, include_context=False):
        key = _key(path, item["loc"], model)
        if item["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            key = ".".join(filter(None, [path, *map(str, item["loc"])]))
            expected.setdefault(key, []).append(
                f"unknown key; {nearest(item['loc'][-1], _siblings(model, item['loc'], also))}"
            )
        elif item["type"] == "missing":
            expected.setdefault(key, []).append("required, but not given")
        else:
            message = item["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
            message = message.split(", unable to parse")[0]
            number = "a number " if message.startswith(("greater", "less")) else ""
            expected.setdefault(key, []).append(f"expected {number}{message}")
            found[key] = item["input"]
    return [
        f"{key}: {' or '.join(dict.fromkeys(texts)).replace(' or expected ', ' or ')}"
        + (f"; found {short(repr(found[key]))}" if key in found else "")
        for key, texts in expected.items()
    ]


def _nested_in(hint: Any) -> Nested | None:
    """`Aggregator[Any]` or `Term | None`: what the catalog has a table of."""
    union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    parts = [part for part in typing.get_args(hint) if part is not type(None)] if union else [hint]
    kinds = [typing.get_origin(part) or part for part in parts]
    tables = [NESTED.get(f"{getattr(kind, '__module__', '')}:{getattr(kind, '__name__', '')}") for kind in kinds]
    if len(tables) != 1 or tables[0] is None:
        return None
    return Nested(tables[0], optional=union)


def _key(path: str, loc: tuple[int | str, ...], model: type[BaseModel]) -> str:
    """The path of the key a user wrote: without the union members that pydantic puts into its locations."""
    parts, known = [path] if path else [], _names(model)
    for depth, part in enumerate(loc):
        if depth == 0 or isinstance(part, int) or part in known:
            parts.append(str(part))
    return ".".join(parts)


def _siblings(model: type[BaseModel], loc: tuple[int | str, ...], also: Sequence[str]) -> list[str]:
    if len(loc) == 1:
        return [*model.model_fields, *also]
    return list(_fields_of(model.model_fields.get(str(loc[0]))))


def _names(model: type[BaseModel]) -> set[str]:
    inner = {name for field in model.model_fields.values() for name in _fields_of(field)}
    return inner | {str(name) for name in model.model_fields}


def _fields_of(field: FieldInfo | None) -> set[str]:
    """The keys of an option that is a mapping, or null."""
    hint = field.annotation if field is not None else None
    return {name for kind in (typing.get_args(hint) or [hint]) for name in getattr(kind, "__dataclass_fields__", {})}
