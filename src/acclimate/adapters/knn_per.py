"""kNN-Per: personalisation by a local memory of features (Marfoq et al., ICML 2022)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acclimate.contracts import Adapter
from acclimate.models.head import features, head_of
from acclimate.neighbours import by_neighbours
from acclimate.options import Share
from acclimate.trees import Nest


class KNNPer(Adapter):
    """Mix the model's prediction with the classes of the nearest training images of this client; nothing is learnt.

    λ is what the calibration found for this client, unless `share` fixes it.
    """

    needs = ("memory",)

    def __init__(self, net: nn.Module, *, memory: Nest, share: Share | None = None) -> None:
        super().__init__(net)
        self.head, self.memory = head_of(net)[1], memory
        self.share = memory["share"] if share is None else share

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        z, logits = features(self.net, x, self.head)
        m = self.memory
        near = by_neighbours(z, m["features"], m["labels"], logits.shape[1], m["k"], m["scale"])
        mix = self.share * near + (1 - self.share) * logits.softmax(1)  # h = λ h_kNN + (1 − λ) h_S, eq. (5)
        return mix.clamp_min(1e-30).log()
