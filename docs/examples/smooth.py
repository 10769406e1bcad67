"""Smooth: no class is favoured for long (an example)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acclimate.contracts import Adapter
from acclimate.options import Decay
from acclimate.params import Params


class Smooth(Adapter):
    """Subtract a running mean of the logits, so that no class is favoured for long."""

    def __init__(self, net: nn.Module, *, momentum: Decay = 0.9) -> None:
        super().__init__(net)
        self.momentum = momentum
        self.mean = torch.zeros(1)

    @torch.no_grad()
    def adapt(self, x: Tensor) -> None:
        self.mean = self.momentum * self.mean + (1 - self.momentum) * self.net(x).mean(0)  # m ← βm + (1 − β) z̄

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        return logits - self.mean

    def state(self) -> Params:
        return {"mean": self.mean.clone()}

    def load_state(self, state: Params) -> None:
        self.mean = state["mean"].clone()
