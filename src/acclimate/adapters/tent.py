"""Tent: test-time adaptation by entropy minimisation (Wang et al., ICLR 2021)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from acclimate.adapters.on_batches import OnBatches
from acclimate.errors import UnsupportedModel
from acclimate.losses import entropy
from acclimate.models.norms import affine, batch_statistics, norm_layers
from acclimate.options import Count, Decay, Positive
from acclimate.params import Params


class Tent(OnBatches):
    """Minimise entropy over the scale and shift of normalisation layers, on batch statistics.

    A batch of one image has no statistics of its own: it is predicted with the source's and teaches nothing.
    `layers: 2d` trains `nn.BatchNorm2d` only, as ATP's released code does; all use the batch's statistics.
    """

    def __init__(
        self,
        net: nn.Module,
        *,
        lr: Positive = 1e-3,
        steps: Count = 1,
        optimizer: Literal["adam", "sgd"] = "adam",
        momentum: Decay = 0.0,
        layers: Literal["all", "2d"] = "all",
    ) -> None:
        super().__init__(net.requires_grad_(False))
        self.steps = steps
        norms = norm_layers(net, "tent")
        self.trained = affine({n: m for n, m in norms.items() if layers == "all" or isinstance(m, nn.BatchNorm2d)})
        if not self.trained:
            raise UnsupportedModel(
                f"'tent' trains scales and shifts and {type(net).__name__} has none (layers: {layers}); "
                "use layers: all or a method that needs none (none, em, bn-adapt)"
            )
        weights = [tensor.requires_grad_() for tensor in self.trained.values()]
        adam = optimizer == "adam"
        self.optimizer: torch.optim.Optimizer = (
            torch.optim.Adam(weights, lr=lr) if adam else torch.optim.SGD(weights, lr=lr, momentum=momentum)
        )

    def moving(self) -> Params:
        return self.trained

    def forward(self, x: Tensor) -> Tensor:
        if len(x) == 1:
            return self.predict(x)
        with torch.enable_grad(), batch_statistics(self.net, len(x)):
            for _ in range(self.steps):
                logits: Tensor = self.net(x)
                loss = self.loss(logits)
                if loss is not None:
                    self.optimizer.zero_grad()
                    loss.backward()
                    self.optimizer.step()
        return logits.detach()  # the prediction precedes the last step

    def loss(self, logits: Tensor) -> Tensor | None:
        """What a step goes down; None: there is nothing to learn from this batch."""
        return entropy(logits).mean()  # §3.1: H(ŷ) = −Σ_c p(ŷ_c) log p(ŷ_c)
