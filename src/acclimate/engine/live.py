"""The one live model of a process: parameters are loaded into it in place, never a copy per client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from acclimate import params


class Live:
    """Hands out the same module again and again, as new: parameters loaded, everything trainable, in train mode."""

    def __init__(self, build: Callable[[int | None], nn.Module]) -> None:
        self._build = build
        self._net: nn.Module | None = None

    def __call__(self, values: Mapping[str, Tensor]) -> nn.Module:
        if self._net is None:
            self._net = self._build(None)
        net = params.load(self._net, values).requires_grad_(True).train()
        net.zero_grad()
        return net

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._build,)
