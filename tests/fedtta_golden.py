"""The models of FedTTA's golden vectors."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

import toys
from acclimate import params
from acclimate.params import Params


class GoldenNet(nn.Module):
    """64-32-32-10 with ReLU, in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = (nn.Linear(a, b).double() for a, b in ((64, 32), (32, 32), (32, 10)))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc3(self.fc2(self.fc1(x.flatten(1)).relu()).relu())
        return logits


def build(id: int | None = None) -> nn.Module:
    return GoldenNet()


def net() -> nn.Module:
    """The base model with the golden weights."""
    return params.load(build(), toys.golden_params(toys.golden("fedtta/inputs.npz"), "psi/"))


def phi(arrays: Any, prefix: str = "") -> Params:
    """The adaptation network below a prefix, under our names."""
    found = toys.golden_params(arrays, f"{prefix}phi/")
    return {name.removeprefix("model."): tensor for name, tensor in found.items()}


def whole(arrays: Any, prefix: str = "") -> Params:
    """Both below a prefix, as one extended model."""
    psi = toys.golden_params(arrays, f"{prefix}psi/")
    return {**psi, **{f"extra.loss_net.{name}": tensor for name, tensor in phi(arrays, prefix).items()}}
