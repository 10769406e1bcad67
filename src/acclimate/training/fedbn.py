"""FedBN: federated learning on non-iid features via local batch normalisation (Li et al., ICLR 2021)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from acclimate.models.norms import norm_layers
from acclimate.training.fedper import FedPer


@dataclass(frozen=True)
class FedBN(FedPer):
    """Average all but the normalisation layers, which stay on the client with their statistics."""

    def stays(self, net: nn.Module) -> set[str]:
        layers = tuple(f"{name}." for name in norm_layers(net, "fedbn"))
        return {name for name in net.state_dict() if name.startswith(layers)}
