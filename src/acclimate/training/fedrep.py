"""FedRep: shared representations for personalised federated learning (Collins et al., ICML 2021, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import nn

from acclimate.contracts import Client
from acclimate.options import Count
from acclimate.sgd import Fit, Group, cross_entropy, trainable
from acclimate.training.fedper import FedPer


@dataclass(frozen=True)
class FedRep(FedPer):
    """First train the head alone (h_i), then the body alone (φ_i), which is what gets averaged.

    `local.epochs` are the body's; what is not being trained stays where it is, also the statistics of batch norms.
    """

    head_epochs: Count = 1  # τ

    def fit(self, net: nn.Module, client: Client, round: int) -> Fit:
        own, loss, tensors = self.stays(net), cross_entropy(net), trainable(net)
        head = Group({name: tensor for name, tensor in tensors.items() if name in own}, loss)
        body = Group({name: tensor for name, tensor in tensors.items() if name not in own}, loss)
        net.eval()
        replace(self.local, epochs=self.head_epochs, steps=None).fit(
            [head], client.train, client.rng, round=round
        )  # h_i^t
        net.train()
        return self.local.fit([body], client.train, client.rng, round=round)  # φ_i^t
