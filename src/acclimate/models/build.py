"""Making a model for a problem: a picklable recipe that every process can follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from acclimate.models.normalise import Normalise


@dataclass(frozen=True)
class Build:
    """Calls a model class with the problem's classes and shape, and the options of the experiment.

    With `variants` devices differ: client k builds variant k mod their number, the server the first.
    """

    make: Callable[..., nn.Module]
    classes: int
    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    variants: tuple[Mapping[str, Any], ...] = ()

    def variant(self, client: int | None) -> int:
        """Which of the variants a client has."""
        return 0 if client is None or not self.variants else client % len(self.variants)

    def __call__(self, client: int | None = None) -> nn.Module:
        own = self.variants[self.variant(client)] if self.variants else {}
        net = self.make(self.classes, self.shape, Normalise(self.mean, self.std), **{**self.options, **own})
        has_convolutions = any(isinstance(module, nn.Conv2d) for module in net.modules())
        # Channels last makes small convolutions 1.3 to 1.5 times faster on a CPU.
        if has_convolutions:
            net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return net
