"""What differs from the defaults: an option that comes later, with a default, makes no difference."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from acclimate.experiment.schema import nested_of, options_of


def differing_options(model: type[BaseModel], values: Mapping[str, Any], dumped: Mapping[str, Any]) -> dict[str, Any]:
    """The options, other than methods, that differ from the defaults, as plain data.

    Of a dataclass, such as that of `local`, only the fields that differ; of a mapping that anybody may fill all of it.
    """
    blank, nested, found = model.model_construct(), nested_of(model), dict[str, Any]()
    defaults = blank.model_dump(mode="json", exclude=set(nested))
    for key, field in model.model_fields.items():
        if key in nested:
            continue
        if dataclasses.is_dataclass(values[key]):
            default = None if field.is_required() else getattr(blank, key)
            part = _differing(values[key], dumped[key], default)
            if type(default) is not type(values[key]):
                part = {"class": type(values[key]).__name__, **part}
            found |= {key: part} if part else {}
        elif field.is_required() or dumped[key] != defaults[key]:
            found[key] = dumped[key]
    return found


def differing(value: Any) -> dict[str, Any]:
    """The fields of a dataclass instance that differ from its class's own defaults.

    >>> from acclimate.sgd import LocalSGD
    >>> differing(LocalSGD(lr=0.5, epochs=1))
    {'lr': 0.5}
    """
    return _differing(value, dataclasses.asdict(value), None)


def revision_of(target: Any) -> dict[str, int]:
    """How often a default of it, or of the classes of its options, has changed; nothing if none has."""
    revision = sum(int(getattr(kind, "revision", 0)) for kind in (target, *classes_of_options(target)))
    return {"revision": revision} if revision else {}


def classes_of_options(target: Any) -> list[type]:
    """Classes of options that are dataclasses, such as that of `local`, and of their fields."""
    hints = [field.annotation for field in options_of(target).model_fields.values()]
    kinds = [kind for hint in hints for kind in (hint, *typing.get_args(hint)) if isinstance(kind, type)]
    own = [kind for kind in kinds if dataclasses.is_dataclass(kind)]
    return list(dict.fromkeys(found for kind in own for found in (kind, *classes_of_options(kind))))


def _differing(value: Any, dumped: Mapping[str, Any], default: Any) -> dict[str, Any]:
    """As `differing`, from another instance of the class if there is one to compare with."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        now = getattr(value, field.name)
        before = getattr(default, field.name) if type(default) is type(value) else _default_of(field)
        if now == before:
            continue
        found[field.name] = dumped[field.name]
        if dataclasses.is_dataclass(now):
            found[field.name] = _differing(now, dumped[field.name], before)
    return found


def _default_of(field: dataclasses.Field[Any]) -> Any:
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()
