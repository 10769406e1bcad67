"""Contrastive learning: rows of a batch that belong together are pulled together, all others pushed apart.

FedICON (Tan et al., FLData-Mining at KDD 2023) trains its encoder by it with labels and tunes it at test time without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.data.augment import Views
from acclimate.models.extended import Extended
from acclimate.models.head import features, head_of
from acclimate.options import Positive

PROJECTION = "projection"  # the module, if one was added, through which features go before they are compared


@dataclass(frozen=True)
class Contrastive:
    """The contrastive loss of a batch, two random views of each image.

    With labels an image belongs to all of its class (supervised), without only to its own other view. `one_sided`
    compares each image as it is with one view of it, and only the images are anchors. z is what enters the head unless
    `layer` names a linear layer: then what leaves it, before any activation.
    """

    views: Views = Views()
    temperature: Positive = 0.1  # τ
    normalise: bool = True  # z to length 1
    reduction: Literal["mean", "sum"] = "mean"  # over anchors
    one_sided: bool = False
    layer: str | None = None

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (a misspelt key in an experiment is an error)

    def loss(self, net: nn.Module, x: Tensor, labels: Tensor | None = None) -> Tensor:
        """What a step on these images goes down."""
        pairs = torch.cat([x, self.views(x)]) if self.one_sided else self.views(torch.cat([x, x]))
        who = torch.arange(len(x)) if labels is None else labels
        each = contrast(self.encode(net, pairs), who.repeat(2), self.temperature, self.normalise)
        each = each[: len(x)] if self.one_sided else each
        return each.mean() if self.reduction == "mean" else each.sum()

    def encode(self, net: nn.Module, x: Tensor) -> Tensor:
        """The features of a batch, each a row."""
        z = self._features(net, x).flatten(1)  # z(x) = h(x; θ_i), eq. (1)
        if isinstance(net, Extended) and PROJECTION in net.extra:
            z = net.extra[PROJECTION](z)
        return z

    def width(self, net: nn.Module) -> int:
        """How many numbers z has."""
        layer = head_of(net, self.layer)[1]
        return layer.in_features if self.layer is None else layer.out_features

    def _features(self, net: nn.Module, x: Tensor) -> Tensor:
        if self.layer is None:
            return features(net, x)[0]
        seen: list[Tensor] = []
        hook = head_of(net, self.layer)[1].register_forward_hook(lambda _, inputs, output: seen.append(output))
        try:
            net(x)
        finally:
            hook.remove()
        return seen[-1]


def contrast(z: Tensor, labels: Tensor, temperature: float, normalise: bool = True) -> Tensor:
    """Eq. (2) for each row x as the anchor; with the numbers of images as labels eq. (5), where P(x) is the other view.

    A row that belongs to no other teaches nothing.

    >>> pair = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> [round(float(l), 4) for l in contrast(pair, torch.tensor([0, 0, 1, 1]), 1.0)[:2]]  # -ln(e / (e + 1 + 1))
    [0.5514, 0.5514]
    """
    z = F.normalize(z, dim=1) if normalise else z
    itself = torch.eye(len(z), dtype=torch.bool)
    log_share = (z @ z.T / temperature).masked_fill(itself, -torch.inf).log_softmax(1)  # A(x): all rows but x
    belongs = (labels.unsqueeze(1) == labels) & ~itself  # P(x), eq. (3)
    return -log_share.masked_fill(~belongs, 0.0).sum(1) / belongs.sum(1).clamp(min=1)  # eq. (2), eq. (5)
