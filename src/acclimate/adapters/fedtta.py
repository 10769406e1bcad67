"""FedTTA: one step down a learnt loss (Ye et al., SDM 2024, §3.2.2)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from acclimate import params
from acclimate.contracts import Adapter
from acclimate.models.loss_net import InnerStep, LossNet
from acclimate.options import Count
from acclimate.params import Params


class FedTTA(Adapter):
    """Step all parameters down ‖g(Z; φ)‖ of a new client's images, and predict the same images.

    The rate, the weight decay and the bound on the gradient come from the phase. The loss is the mean over batches of
    `batch_size` images, as in the released code, which is the scale φ was trained on; `norm: client` takes one norm
    over all images, as eq. (11) has it (E3). Meant for all of a client's images at once: `test: {batch_size: all}`.
    """

    needs = ("loss_net", "inner_step")

    def __init__(
        self,
        net: nn.Module,
        *,
        loss_net: Params,
        inner_step: InnerStep,
        norm: Literal["batches", "client"] = "batches",
        batch_size: Count = 64,
    ) -> None:
        super().__init__(net.requires_grad_(True))
        self.g, self.inner, self.whole, self.batch_size = LossNet.of(loss_net), inner_step, norm == "client", batch_size
        self.psi: Params = dict(net.named_parameters())

    def moving(self) -> Params:
        return self.psi

    def adapt(self, x: Tensor) -> None:
        self.step(self.loss(self.logits(x)))

    @torch.enable_grad()
    def logits(self, x: Tensor) -> list[Tensor]:
        """Z = f(D_new; ψ), eq. (10), batch by batch."""
        return [self.net(batch) for batch in x.split(self.batch_size)]

    @torch.enable_grad()
    def loss(self, z: list[Tensor]) -> Tensor:
        """‖g(Z; φ)‖₂, eq. (2)."""
        return self.g.over(z, self.whole)

    def step(self, loss: Tensor) -> None:
        """ψ ← ψ − η_inner ∇ ‖g(Z; φ)‖₂, eq. (11)."""
        params.descend(loss, self.psi, *self.inner)
