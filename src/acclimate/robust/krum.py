"""Krum: the one that is nearest to its neighbours (Blanchard et al., NeurIPS 2017, §4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from acclimate.options import HalfShare
from acclimate.params import cast
from acclimate.robust.rule import Judged, Rule, Sent, hostile, mean, middle, products
from acclimate.trees import Nest


@dataclass(frozen=True)
class Krum(Rule):
    """Everybody counts as the chosen one; the f that are farthest from their neighbours are set aside."""

    share: HalfShare = 0.2  # f / K, of clients that may be hostile

    def chosen(self, clients: int) -> int:
        """How many are chosen (m of Multi-Krum)."""
        return 1

    def judge(self, ids: Sequence[int], sent: Sequence[Sent], memory: Nest) -> Judged:
        k, f = len(sent), hostile(self.share, len(sent))
        order = self.scores(sent, f).argsort(stable=True).tolist()
        best, worst = order[: self.chosen(k)], set(order[k - f :])
        centre = mean([sent[i] for i in best], [1.0] * len(best))
        stand_in = [cast(tensor, own.dtype) for tensor, own in zip(centre, sent[0], strict=True)]
        counted = [own if i in best else stand_in for i, own in enumerate(sent)]
        return Judged(counted, [0.0 if i in worst else 1.0 for i in range(k)], None)

    def scores(self, sent: Sequence[Sent], f: int) -> Tensor:
        """s(i) = Σ_{i → j} ‖V_i − V_j‖², over the K − f − 2 nearest of i."""
        inner = products(sent, middle(sent))
        distance = (inner.diag()[:, None] + inner.diag() - 2 * inner).clamp(min=0)
        distance.fill_diagonal_(torch.inf)
        near = max(len(sent) - f - 2, 1)
        return distance.sort(1).values[:, :near].sum(1) if len(sent) > 1 else torch.zeros(1)
