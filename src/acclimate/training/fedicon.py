"""FedICON's training: invariance learnt by contrast and shared (Tan et al., FLData-Mining at KDD 2023, §3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from acclimate import params
from acclimate.contracts import Client, Knowledge, Reply
from acclimate.contrast import PROJECTION, Contrastive
from acclimate.models.extended import EXTRA, Extended
from acclimate.models.head import head_of
from acclimate.options import Whole
from acclimate.params import Params
from acclimate.sgd import LocalSGD, Loss
from acclimate.training.fedavg import FedAvg, Global


@dataclass(frozen=True)
class FedICON(FedAvg):
    """Average encoders that each client trains to tell classes apart, by contrast; the head stays as it was drawn.

    A phase `head` then trains the head, and `finetune` makes it personal. `labels: false` is FedICON-us. Eq. (4) is
    read without its 1/m, which would shrink the model in every round; `average: clients` weighs clients alike. With
    `projection` features pass two linear layers before they are compared, which are thrown away in the end.
    """

    local: LocalSGD = LocalSGD(lr=0.01, epochs=5, batch_size=32, weight_decay=5e-4)
    contrast: Contrastive = Contrastive()
    labels: bool = True
    average: Literal["examples", "clients"] = "examples"
    projection: Whole = 0  # how many numbers come out of it; 0: there is none

    def extend(self, net: nn.Module) -> nn.Module:
        if self.projection == 0:
            return net
        width, kind = self.contrast.width(net), head_of(net)[1].weight.dtype
        layers = nn.Linear(width, width, dtype=kind), nn.ReLU(), nn.Linear(width, self.projection, dtype=kind)
        return Extended(net, **{PROJECTION: nn.Sequential(*layers)})

    def loss(self, net: nn.Module, w: Params) -> Loss:
        return lambda x, y: self.contrast.loss(net, x, y if self.labels else None)  # L_sup, eq. (2)

    def client_update(self, server: Global, state: None, client: Client) -> tuple[Reply, None]:
        reply, _ = super().client_update(server, state, client)  # θ_i
        return reply if self.average == "examples" else reply._replace(weight=1.0), None  # |D_i| / N, eq. (4)

    def export(self, server: Global, state: None, client: int) -> Knowledge:
        return {"model": params.select(server.w, lambda name: not name.startswith(f"{EXTRA}.{PROJECTION}."))}
