"""Something of the catalog with its options, which may be something of the catalog again, at any depth."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic import BaseModel

from acclimate.contracts import Adapter, AdapterRecipe
from acclimate.errors import nearest
from acclimate.experiment.catalog import Entry
from acclimate.experiment.schema import GIVEN, check, nested_of, options_of


@dataclass(frozen=True)
class Chosen:
    """A method, scenario or model with its options."""

    name: str
    target: Any  # the class
    options: Mapping[str, Any]  # as Python values; those that are methods are made
    plain: Mapping[str, Any]  # name and all options, defaults included, as plain data: for people
    differs: Mapping[str, Any]  # name, revision and only what differs from the defaults: for digests
    # An instance; of an adapter or a model, which take more than options, what makes one.
    made: Any = dataclasses.field(compare=False)
    inner: tuple[Chosen, ...] = ()  # the methods among its options

    @property
    def modules(self) -> list[str]:
        """Where its code is, and that of the methods among its options."""
        return [self.target.__module__, *(module for chosen in self.inner for module in chosen.modules)]


def choose(
    raw: Any, path: str, table: Mapping[str, Entry], reserved: Sequence[str] = ()
) -> tuple[Chosen | None, list[str]]:
    """What a bare name, or a mapping with a name and options, stands for; or every problem with it.

    `reserved`: keys that stand beside the options and are read elsewhere.
    """
    given = {"name": raw} if isinstance(raw, str) else raw
    if (name := _name_of(given, table)) is not None:  # an object, from Python or as a default
        return _with_options(name, table[name].load(), _options_of_object(given), path, ())
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        return None, [f"{path}: expected a name, or a mapping with a name and options; found {raw!r}"]
    name = given["name"]
    if name not in table:
        return None, [f"{path}.name: unknown '{name}'; {nearest(name, table)}"]
    options = {key: value for key, value in given.items() if key != "name" and key not in reserved}
    return _with_options(name, table[name].load(), options, path, ("name", *reserved))


def default_options(target: Any) -> dict[str, Any]:
    """All options that have a default, with it, as plain data."""
    model = options_of(target)
    blank, nested = model.model_construct(), nested_of(model)
    found = blank.model_dump(mode="json", exclude=set(nested))
    found |= {
        key: _plain(_chosen(getattr(blank, key), mark.table)) for key, mark in nested.items() if key in vars(blank)
    }
    return {key: found[key] for key, field in model.model_fields.items() if not field.is_required()}


def differing(value: Any) -> dict[str, Any]:
    """The fields of a dataclass instance that differ from its class's own defaults.

    >>> from acclimate.sgd import LocalSGD
    >>> differing(LocalSGD(lr=0.5, epochs=1))
    {'lr': 0.5}
    """
    return _differing(value, dataclasses.asdict(value), None)


def flat(plain: Any, path: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys, as overrides are written.

    >>> flat({"lr": 1, "of": {"name": "em"}})
    {'lr': 1, 'of.name': 'em'}
    """
    if not isinstance(plain, Mapping):
        return {path: plain}
    return {k: v for key, item in plain.items() for k, v in flat(item, f"{path}.{key}" if path else str(key)).items()}


def revision_of(target: Any) -> int:
    """How often a default of it, or of the classes of its options, has changed."""
    return sum(int(getattr(kind, "revision", 0)) for kind in (target, *classes_of_options(target)))


def classes_of_options(target: Any) -> list[type]:
    """Classes of options that are dataclasses, such as that of `local`, and of their fields."""
    hints = [field.annotation for field in options_of(target).model_fields.values()]
    kinds = [kind for hint in hints for kind in (hint, *typing.get_args(hint)) if isinstance(kind, type)]
    own = [kind for kind in kinds if dataclasses.is_dataclass(kind)]
    return list(dict.fromkeys(found for kind in own for found in (kind, *classes_of_options(kind))))


def _with_options(
    name: str, target: Any, raw: Mapping[str, Any], path: str, also: Sequence[str]
) -> tuple[Chosen | None, list[str]]:
    model = options_of(target)
    given, inner, problems = dict(raw), dict[str, Chosen | None](), list[str]()
    for key, mark in nested_of(model).items():
        if key in raw and not (raw[key] is None and mark.optional):
            inner[key], found = choose(raw[key], f"{path}.{key}", mark.table)
            given[key], problems = None, problems + found  # it may be anything there: it was checked here
    values, dumped, found = check(target, given, path, also)
    if problems or found:
        return None, problems + found
    for key, mark in nested_of(model).items():
        chosen = inner.setdefault(key, _chosen(values[key], mark.table))
        values[key], dumped[key] = chosen and chosen.made, _plain(chosen)
    differs = _differs(model, values, dumped, inner)
    if revision := revision_of(target):
        differs = {"revision": revision, **differs}
    plain = {"name": name, **{key: dumped[key] for key in model.model_fields}}
    try:
        made = _make(target, values)
    except ValueError as error:  # of a class that looks at several options together
        return None, [f"{path}: {error}"]
    return Chosen(name, target, values, plain, {"name": name, **differs}, made, tuple(filter(None, inner.values()))), []


def _make(target: Any, options: Mapping[str, Any]) -> Any:
    if inspect.isclass(target) and issubclass(target, Adapter):
        return AdapterRecipe(target, options)
    takes_more = GIVEN & set(inspect.signature(target).parameters)
    return partial(target, **options) if takes_more else target(**options)


def _differs(
    model: type[BaseModel], values: Mapping[str, Any], dumped: Mapping[str, Any], inner: Mapping[str, Chosen | None]
) -> dict[str, Any]:
    """The options that differ from the defaults: an option that comes later, with a default, changes nothing here."""
    blank, nested, found = model.model_construct(), nested_of(model), dict[str, Any]()
    defaults = blank.model_dump(mode="json", exclude=set(nested))
    for key, field in model.model_fields.items():
        default = None if field.is_required() else getattr(blank, key)
        if key in nested:
            chosen = inner[key]
            if field.is_required() or _plain(chosen) != _plain(_chosen(default, nested[key].table)):
                found[key] = chosen and chosen.differs
        elif dataclasses.is_dataclass(values[key]):
            part = _differing(values[key], dumped[key], default)
            if type(default) is not type(values[key]):
                part = {"class": type(values[key]).__name__, **part}
            found |= {key: part} if part else {}
        elif field.is_required() or dumped[key] != defaults[key]:
            found[key] = dumped[key]
    return found


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


def _plain(chosen: Chosen | None) -> Mapping[str, Any] | None:
    return None if chosen is None else chosen.plain


def _chosen(made: Any, table: Mapping[str, Entry]) -> Chosen | None:
    """A default that is a method, as if it had been written."""
    if made is None:
        return None
    chosen, problems = choose(made, "a default", table)
    if chosen is None:
        raise TypeError("; ".join(problems))  # of whoever wrote the class: its default is not in the catalog
    return chosen


def _name_of(made: Any, table: Mapping[str, Entry]) -> str | None:
    """The name under which the catalog has the class of an object."""
    if made is None or isinstance(made, Mapping) or not dataclasses.is_dataclass(made):
        return None
    target = made.target if isinstance(made, AdapterRecipe) else type(made)
    return next((name for name, entry in table.items() if entry.load() is target), None)


def _options_of_object(made: Any) -> dict[str, Any]:
    if isinstance(made, AdapterRecipe):
        return dict(made.options)
    return {field.name: getattr(made, field.name) for field in dataclasses.fields(made) if field.init}
