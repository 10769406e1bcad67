"""Surgical: one entropy step on the block, at the rate, that were chosen on source data (Lee et al., ICLR 2023)."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from acclimate import params
from acclimate.contracts import Adapter
from acclimate.errors import MissingKnowledge
from acclimate.losses import entropy
from acclimate.models.blocks import blocks
from acclimate.params import Params


class Surgical(Adapter):
    """Move one block down the entropy of the batch, always from the source model, and predict the same batch.

    The unsupervised form of ATP's comparison: eval mode, running statistics stay, each batch on its own. The rate is
    chosen together with the block, so it is no option here; `lrs: [0.01]` of the phase leaves no choice.
    """

    needs = ("block", "rate")
    revision: ClassVar[int] = 1  # the rate was an option

    def __init__(self, net: nn.Module, *, block: str, rate: float) -> None:
        super().__init__(net.requires_grad_(False))
        self.rate = rate
        groups, tensors = blocks(net), dict(net.named_parameters())
        if block not in groups:
            raise MissingKnowledge(
                f"{type(net).__name__} has no block '{block}', only {', '.join(groups)}; choose on this model"
            )
        self.trained: Params = {name: tensors[name].requires_grad_() for name in groups[block]}
        self.source = {name: params.copy(tensor) for name, tensor in self.trained.items()}

    def moving(self) -> Params:
        return self.trained

    def adapt(self, x: Tensor) -> None:
        params.assign(self.trained, self.source)
        with torch.enable_grad():
            loss = entropy(self.net(x)).mean()
        params.descend(loss, self.trained, self.rate)
