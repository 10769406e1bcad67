"""Methods from plain data, as a manifest has them: the types of options say what to make of them.

The device's half of `experiment/choice.py`: nothing is checked again that was checked when the manifest was written,
so that no more than the method itself has to be imported.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Mapping
from typing import Any

from acclimate.contracts import Adapter, AdapterRecipe
from acclimate.errors import ConfigError, nearest
from acclimate.experiment.catalog import NESTED, Entry
from acclimate.plugins import is_plugin, pick

Plain = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Reviver:
    """Makes methods; of code outside the package only what the caller has listed, by the name of the class."""

    allowed: dict[str, Any]

    def target(self, name: str, table: Mapping[str, Entry]) -> Any:
        """The class of a name."""
        if is_plugin(name):
            try:
                return pick(name, self.allowed)
            except ValueError as error:
                raise ConfigError([str(error)], "the bundle") from None
        if name not in table:
            raise ConfigError([f"unknown '{name}'; {nearest(name, table)} (or a newer acclimate)"], "the bundle")
        return table[name].load()

    def method(self, plain: Plain, table: Mapping[str, Entry]) -> Any:
        """A method with its options: an instance, or of an adapter what makes one."""
        target = self.target(plain["name"], table)
        options = self.options(target, {key: value for key, value in plain.items() if key != "name"})
        return AdapterRecipe(target, options) if _is_adapter(target) else target(**options)

    def options(self, target: Any, plain: Plain) -> dict[str, Any]:
        """Options as Python values."""
        own_init = inspect.isclass(target) and not dataclasses.is_dataclass(target)
        hints = typing.get_type_hints(target.__init__ if own_init else target)
        return {key: self._value(value, hints.get(key)) for key, value in plain.items()}

    def _value(self, value: Any, hint: Any) -> Any:
        kinds = [hint, *typing.get_args(hint)]
        for kind in (typing.get_origin(kind) or kind for kind in kinds):
            table = NESTED.get(f"{getattr(kind, '__module__', '')}:{getattr(kind, '__name__', '')}")
            if isinstance(value, Mapping) and table is not None:
                return self.method(value, table)
            if isinstance(value, Mapping) and isinstance(kind, type) and dataclasses.is_dataclass(kind):
                return kind(**self.options(kind, value))
            if isinstance(value, list) and kind is tuple:
                return tuple(value)
        return value


def _is_adapter(target: Any) -> bool:
    return inspect.isclass(target) and issubclass(target, Adapter)
