"""Mean and standard deviation as a model's first, parameter-free layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Normalise(nn.Module):
    """(x − mean) / std per channel; its two constants are not part of the model's parameters."""

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values).view(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.get_buffer("mean")) / self.get_buffer("std")


class OnlyInTraining(nn.Module):
    """A layer that is there while a model trains and gone when it is tested: a mistake, to see what it costs."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) if self.training else x
