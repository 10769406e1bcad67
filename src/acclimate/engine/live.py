"""The live models of a process, one per architecture: parameters are loaded in place, never a copy per client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from acclimate import params


class Live:
    """Hands out the same module again and again, as new: parameters loaded, everything trainable, in train mode.

    Recipes for devices that differ (`Build.variant`) get one module per variant.
    """

    def __init__(self, build: Callable[[int | None], nn.Module]) -> None:
        self._build = build
        self._nets: dict[int, nn.Module] = {}

    def __call__(self, values: Mapping[str, Tensor], client: int | None = None) -> nn.Module:
        variant = self._build.variant(client) if hasattr(self._build, "variant") else 0
        if variant not in self._nets:
            self._nets[variant] = self._build(client)
        net = params.load(self._nets[variant], values).requires_grad_(True).train()
        net.zero_grad()
        return net

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._build,)
