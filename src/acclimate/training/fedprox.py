"""FedProx: federated optimisation in heterogeneous networks (Li et al., MLSys 2020, Algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass

from acclimate.losses import Term
from acclimate.options import NonNegative
from acclimate.terms import Proximal
from acclimate.training.fedavg import FedAvg


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg whose clients stay near the model they were sent; averaging is FedAvg's, by examples."""

    mu: NonNegative = 0.01  # μ

    def term(self) -> Term:
        return Proximal(self.mu)  # h_k(w; w_t) = F_k(w) + μ/2 ‖w − w_t‖², eq. (2)
