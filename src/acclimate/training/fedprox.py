"""FedProx: federated optimisation in heterogeneous networks (Li et al., MLSys 2020, Algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from acclimate.options import NonNegative
from acclimate.params import Params
from acclimate.sgd import Loss
from acclimate.terms import Proximal
from acclimate.training.fedavg import FedAvg


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg whose clients stay near the model they were sent; averaging is FedAvg's, by examples."""

    mu: NonNegative = 0.01  # μ

    def loss(self, net: nn.Module, w: Params) -> Loss:
        own, near = super().loss(net, w), Proximal(self.mu)

        def h(x: Tensor, y: Tensor) -> Tensor:
            return own(x, y) + near(net, x, w, None)  # h_k(w; w_t) = F_k(w) + μ/2 ‖w − w_t‖², eq. (2)

        return h
