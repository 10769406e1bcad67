"""A learnt loss without labels: a small network that judges logits (FedTTA, after adaptive risk minimisation)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from acclimate import params
from acclimate.params import Params


class InnerStep(NamedTuple):
    """How a model is stepped down a learnt loss, without labels."""

    lr: float  # η_inner
    weight_decay: float
    clip: float | None  # at test time only


class LossNet(nn.Sequential):
    """g(·; φ): how poorly a classifier does on each image, from its logits; the loss is their norm over a batch.

    Two images whose scalars are 3 and 4 make a loss of 5:

    >>> g = LossNet(2, width=1)
    >>> for tensor in g.parameters():
    ...     _ = nn.init.ones_(tensor)
    >>> g(torch.tensor([[-0.5, -0.5], [0.0, 0.0]]))
    tensor(5., grad_fn=<LinalgVectorNormBackward0>)
    """

    def __init__(self, classes: int, width: int = 32, dtype: torch.dtype | None = None) -> None:
        hidden = [
            layer for size in (classes, width, width) for layer in (nn.Linear(size, width, dtype=dtype), nn.ReLU())
        ]
        super().__init__(*hidden, nn.Linear(width, 1, dtype=dtype))

    @classmethod
    def of(cls, phi: Mapping[str, Tensor]) -> LossNet:
        """The network with these tensors, frozen."""
        width, classes = phi["0.weight"].shape
        net = cls(classes, width, phi["0.weight"].dtype)
        params.load(net, phi)
        return net.requires_grad_(False)

    def forward(self, logits: Tensor) -> Tensor:
        for layer in self:
            logits = layer(logits)
        loss: Tensor = torch.linalg.vector_norm(logits)  # ℓ_per = ‖g(Z; φ)‖₂, eq. (2)
        return loss

    def over(self, batches: Sequence[Tensor], whole: bool = False) -> Tensor:
        """The loss of several batches: the mean of theirs, or (`whole`) as if they were one."""
        parts = [torch.cat(list(batches))] if whole else batches
        return torch.stack([self(z) for z in parts]).mean()


def stepped(loss: Tensor, tensors: Mapping[str, Tensor], step: InnerStep) -> Params:
    """The tensors after a step down the loss, still a function of everything that the loss depends on."""
    found = torch.autograd.grad(loss, list(tensors.values()), create_graph=True)
    kept = 1 - step.lr * step.weight_decay
    return {
        name: torch.add(tensor * kept if step.weight_decay else tensor, gradient, alpha=-step.lr)
        for (name, tensor), gradient in zip(tensors.items(), found, strict=True)
    }
