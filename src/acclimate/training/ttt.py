"""TTT's training: classes and rotations together, averaged by FedAvg (Sun et al., ICML 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.contracts import Knowledge
from acclimate.models.extended import EXTRA, Extended, is_extra, plain
from acclimate.models.rotation import rotation_head, rotation_loss
from acclimate.params import Params, select
from acclimate.sgd import Loss
from acclimate.training.fedavg import FedAvg, Global

_OWN = f"{EXTRA}.rotation."


@dataclass(frozen=True)
class TTT(FedAvg):
    """FedAvg of a model with a second head, which tells by how much an image was turned.

    Both heads see the same features; the paper's branches further down, where a network has the depth for it. An image
    is shown in all four turns, or with `turns: random` in one that is drawn for it, which costs two passes, not five.
    """

    exports = ("model", "rotation")

    turns: Literal["all", "random"] = "all"

    def extend(self, net: nn.Module) -> nn.Module:
        return Extended(net, rotation=rotation_head(net))

    def loss(self, net: nn.Module, w: Params) -> Loss:
        assert isinstance(net, Extended)

        def joint(x: Tensor, y: Tensor) -> Tensor:
            turns = rotation_loss(net, net.extra["rotation"], x, once=self.turns == "random")
            return F.cross_entropy(net(x), y) + turns  # l_m + l_s, eq. (3)

        return joint

    def export(self, server: Global, state: None, client: int) -> Knowledge:
        rotation = {name.removeprefix(_OWN): tensor for name, tensor in select(server.w, is_extra).items()}
        return {"model": plain(server.w), "rotation": rotation}
