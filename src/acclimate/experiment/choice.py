"""Something of the catalog with its options, which may be something of the catalog again, at any depth."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pydantic.fields import FieldInfo

from acclimate import plugins
from acclimate.contracts import Adapter, AdapterRecipe
from acclimate.errors import nearest
from acclimate.experiment.catalog import Entry
from acclimate.experiment.differences import differing_options, revision_of
from acclimate.experiment.outside import Outside
from acclimate.experiment.schema import GIVEN, check, nested_of, options_of
from acclimate.experiment.source import source_digest


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
    raw: Any,
    path: str,
    table: Mapping[str, Entry],
    reserved: Sequence[str] = (),
    outside: Outside | None = None,
) -> tuple[Chosen | None, list[str]]:
    """What a bare name, or a mapping with a name and options, stands for; or every problem with it.

    `reserved`: keys that stand beside the options and are read elsewhere. `outside`: plug-ins may be named.
    """
    given = {"name": raw} if isinstance(raw, str) else raw
    if (name := _name_of(given, table)) is not None:  # an object, from Python or as a default
        return _with_options(name, table[name].load(), _options_of_object(given), path, (), outside)
    if not isinstance(given, Mapping) or not isinstance(given.get("name"), str):
        return None, [f"{path}: expected a name, or a mapping with a name and options; found {raw!r}"]
    name = given["name"]
    if plugins.is_plugin(name) and outside is not None:
        try:
            target = outside.load(name, table)
        except ValueError as error:
            return None, [f"{path}.name: {error}"]
    elif name in table:
        target = table[name].load()
    else:
        return None, [f"{path}.name: unknown '{name}'; {nearest(name, table)}"]
    options = {key: value for key, value in given.items() if key != "name" and key not in reserved}
    return _with_options(name, target, options, path, ("name", *reserved), outside)


def default_options(target: Any) -> dict[str, Any]:
    """All options that have a default, with it, as plain data."""
    model = options_of(target)
    blank, nested = model.model_construct(), nested_of(model)
    found = blank.model_dump(mode="json", exclude=set(nested))
    found |= {
        key: _plain(_chosen(getattr(blank, key), mark.table)) for key, mark in nested.items() if key in vars(blank)
    }
    return {key: found[key] for key, field in model.model_fields.items() if not field.is_required()}


def flat(plain: Any, path: str = "") -> dict[str, Any]:
    """Nested mappings as dotted keys, as overrides are written.

    >>> flat({"lr": 1, "of": {"name": "em"}})
    {'lr': 1, 'of.name': 'em'}
    """
    if not isinstance(plain, Mapping):
        return {path: plain}
    return {k: v for key, item in plain.items() for k, v in flat(item, f"{path}.{key}" if path else str(key)).items()}


def _with_options(
    name: str, target: Any, raw: Mapping[str, Any], path: str, also: Sequence[str], outside: Outside | None
) -> tuple[Chosen | None, list[str]]:
    model = options_of(target)
    given, inner, problems = dict(raw), dict[str, Chosen | None](), list[str]()
    for key, mark in nested_of(model).items():
        if key in raw and not (raw[key] is None and mark.optional):
            inner[key], found = choose(raw[key], f"{path}.{key}", mark.table, outside=outside)
            given[key], problems = None, problems + found  # it may be anything there: it was checked here
    values, dumped, found = check(target, given, path, also)
    if problems or found:
        return None, problems + found
    for key, mark in nested_of(model).items():
        chosen = inner.setdefault(key, _chosen(values[key], mark.table))
        values[key], dumped[key] = chosen and chosen.made, _plain(chosen)
    code = {"source": source_digest([target.__module__])} if plugins.is_plugin(name) else {}
    differs = {"name": name, **code, **revision_of(target), **differing_options(model, values, dumped)}
    for key, mark in nested_of(model).items():
        if _differs(inner[key], model.model_fields[key], mark.table):
            differs[key] = chosen.differs if (chosen := inner[key]) else None
    plain = {"name": name, **{key: dumped[key] for key in model.model_fields}}
    try:
        made = _make(target, values)
    except ValueError as error:  # of a class that looks at several options together
        return None, [f"{path}: {error}"]
    return Chosen(name, target, values, plain, differs, made, tuple(filter(None, inner.values()))), []


def _make(target: Any, options: Mapping[str, Any]) -> Any:
    if inspect.isclass(target) and issubclass(target, Adapter):
        return AdapterRecipe(target, options)
    takes_more = GIVEN & set(inspect.signature(target).parameters)
    return partial(target, **options) if takes_more else target(**options)


def _differs(chosen: Chosen | None, field: FieldInfo, table: Mapping[str, Entry]) -> bool:
    """Whether a method was given that is not the default."""
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    return field.is_required() or _plain(chosen) != _plain(_chosen(default, table))


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
