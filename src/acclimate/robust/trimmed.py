"""The coordinate-wise trimmed mean (Yin et al., ICML 2018, Definition 2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from acclimate.options import HalfShare
from acclimate.robust.rule import Stateless, hostile


@dataclass(frozen=True)
class Trimmed(Stateless):
    """Of each number the largest and the smallest β K count as the mean of the others.

    The mean over all clients is then the trimmed mean, and whoever mixes clients otherwise keeps what is their own.
    """

    share: HalfShare = 0.2  # β

    def change(self, many: Tensor) -> Tensor:
        k, cut = len(many), hostile(self.share, len(many))
        ordered, order = many.sort(dim=0, stable=True)
        kept = ordered[cut : k - cut].mean(0)  # (1 / ((1 − 2β) K)) Σ_{x ∈ U_k} x
        ordered[:cut] = kept
        ordered[k - cut :] = kept
        return torch.empty_like(many).scatter_(0, order, ordered)
