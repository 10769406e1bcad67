"""FedSR: a simple representation for domain generalisation (Nguyen et al., NeurIPS 2022).

The UPFL paper gives the two coefficients and no architecture. Here the features that enter the head are the mean of the
representation z, a further layer gives its spread, and the reference of each class is a normal distribution of its own,
as in the paper. New images are predicted with the mean of z, so the model that comes out is a plain one.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.contracts import Knowledge
from acclimate.models.extended import Extended, plain
from acclimate.models.head import features, head_of
from acclimate.options import NonNegative
from acclimate.params import Params
from acclimate.sgd import Loss
from acclimate.training.fedavg import FedAvg, Global


class Reference(nn.Module):
    """r(z | y): a normal distribution for each class."""

    def __init__(self, classes: int, size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(classes, size, dtype=dtype))
        self.spread = nn.Parameter(torch.ones(classes, size, dtype=dtype))  # before softplus


@dataclass(frozen=True)
class FedSR(FedAvg):
    """FedAvg on a noisy representation that is short (L2R) and tells no more of an image than its class does (CMI)."""

    l2r: NonNegative = 0.01  # α^L2R
    cmi: NonNegative = 0.0005  # α^CMI

    def extend(self, net: nn.Module) -> nn.Module:
        head = head_of(net)[1]
        size, kind = head.in_features, head.weight.dtype
        return Extended(
            net, spread=nn.Linear(size, size, dtype=kind), reference=Reference(head.out_features, size, kind)
        )

    def loss(self, net: nn.Module, w: Params) -> Loss:
        assert isinstance(net, Extended)
        head, spread, reference = head_of(net)[1], net.extra["spread"], net.extra["reference"]
        assert isinstance(reference, Reference)

        def loss(x: Tensor, y: Tensor) -> Tensor:
            mu, _ = features(net, x, head)
            sigma = F.softplus(spread(mu))
            z = mu + sigma * torch.randn_like(mu)  # z ~ p(z | x)
            short = z.square().sum(1).mean()  # ℓ^L2R = E ‖z‖²
            to_mu, to_sigma = reference.mean[y], F.softplus(reference.spread[y])
            gap = (sigma.square() + (mu - to_mu).square()) / (2 * to_sigma.square())
            told = (to_sigma.log() - sigma.log() + gap - 0.5).sum(1).mean()  # ℓ^CMI = E KL[p(z | x) ‖ r(z | y)]
            return F.cross_entropy(head(z), y) + self.l2r * short + self.cmi * told

        return loss

    def export(self, server: Global, state: None, client: int) -> Knowledge:
        return {"model": plain(server.w)}
