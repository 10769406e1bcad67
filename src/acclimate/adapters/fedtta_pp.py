"""FedTTA++: steps down a learnt loss, stopped early by entropy (Ye et al., SDM 2024, §3.3.2, Algorithm 1)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from acclimate.adapters.fedtta import FedTTA
from acclimate.losses import entropy
from acclimate.models.loss_net import InnerStep
from acclimate.options import Count
from acclimate.params import Params


class FedTTAPlusPlus(FedTTA):
    """Repeat FedTTA's step, keep the model of least entropy, and stop after `patience` steps without a lower one.

    The first candidate is the model after one step, as in Algorithm 1; `first: 0` also lets the model as it was sent
    win, as the released code does (E2). `entropy: batches` averages the means of batches instead of images (E11).
    The release puts the patience counter where the probability belongs (E1); that is not reproduced.
    """

    def __init__(
        self,
        net: nn.Module,
        *,
        loss_net: Params,
        inner_step: InnerStep,
        norm: Literal["batches", "client"] = "batches",
        batch_size: Count = 64,
        steps: Count = 50,
        patience: Count = 1,
        first: Literal[0, 1] = 1,
        entropy: Literal["images", "batches"] = "images",
    ) -> None:
        super().__init__(net, loss_net=loss_net, inner_step=inner_step, norm=norm, batch_size=batch_size)
        self.steps, self.patience, self.first, self.by_image = steps, patience, first, entropy == "images"

    def adapt(self, x: Tensor) -> None:
        classes, losses, entropies = [], [], []
        least, chosen, waited, best = math.inf, 0, 0, self.state()  # where nothing is a number, nothing is adapted
        for e in range(self.steps + 1):
            z = self.logits(x)
            loss, h = self.loss(z), self.sureness(z)
            classes.append(torch.cat(z).argmax(-1))
            losses.append(loss.detach())
            entropies.append(h)
            if e >= self.first and h < least:
                least, chosen, waited, best = h, e, 0, self.state()
            elif e > 0:
                waited += 1
            if waited >= self.patience or e == self.steps:
                break
            self.step(loss)
        self.load_state(best)
        self.figures = {
            "predictions": torch.stack(classes),  # after 0, 1, ... steps
            "loss": torch.stack(losses),
            "entropy": torch.tensor(entropies),
            "chosen": torch.tensor(chosen),
        }

    @torch.no_grad()
    def sureness(self, z: list[Tensor]) -> float:
        """H(σ(Z̃)), in nats."""
        parts = [torch.cat(z)] if self.by_image else z
        return sum(float(entropy(part).mean()) for part in parts) / len(parts)
