"""Methods, models and scenarios outside the catalog, in the place of its own."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from acclimate import plugins
from acclimate.experiment.catalog import CONTRACTS, Entry


@dataclass
class Outside:
    """Resolves plug-ins named in one experiment file. Whoever makes one allows its imports."""

    folder: Path = Path()  # what file names are relative to
    found: dict[str, str] = field(default_factory=dict)  # name as written → file

    def find(self, written: str) -> Any:
        """What a name stands for."""
        return plugins.load(written, self.folder)

    def load(self, written: str, table: Mapping[str, Entry]) -> Any:
        """The class, checked against the contract of the table in whose place it stands; ValueError: why not."""
        target, (contract, words) = self.find(written), _contract(table)
        is_class = inspect.isclass(target)
        fits = is_class and issubclass(target, contract)
        if not fits and not (contract is nn.Module and inspect.isroutine(target)):
            kind = "a class" if is_class else f"a {type(target).__name__}"
            raise ValueError(f"expected {words}; '{written}' is {kind}")
        if inspect.isabstract(target):
            missing = ", ".join(sorted(target.__abstractmethods__))
            raise ValueError(f"expected {words}; '{written}' does not implement {missing}")
        self.found[written] = str(getattr(sys.modules[target.__module__], "__file__", None) or target.__module__)
        return target


@dataclass
class Listed(Outside):
    """Resolves only what the caller has listed, whatever a file says."""

    allowed: dict[str, Any] = field(default_factory=dict)

    def find(self, written: str) -> Any:
        return plugins.pick(written, self.allowed)


@dataclass(frozen=True)
class ByName:
    """Makes a model of a user's own, which takes by name what it wants to know and nothing it does not ask for.

    A function that takes any keyword, as torchvision's do, is told `num_classes`.
    """

    target: Callable[..., nn.Module]

    def __call__(self, classes: int, shape: tuple[int, int, int], normalise: nn.Module, **options: Any) -> nn.Module:
        offered = {"classes": classes, "num_classes": classes, "shape": shape, "normalise": normalise}
        parameters = inspect.signature(self.target).parameters
        wanted = set(parameters)
        if any(one.kind is one.VAR_KEYWORD for one in parameters.values()) and "classes" not in wanted:
            wanted.add("num_classes")
        return self.target(**{name: value for name, value in offered.items() if name in wanted}, **options)


def _contract(table: Mapping[str, Entry]) -> tuple[type, str]:
    for own, entry in CONTRACTS:
        if own is table:
            return entry.load(), entry.summary
    raise ValueError(f"expected one of the catalog's own: {', '.join(sorted(table))}")
