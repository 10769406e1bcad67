"""A reputation that decays: RFFL (Xu & Lyu, FL-ICML 2021, Algorithm 1), its robust half.

There whoever loses its reputation is gone for good; here it is set aside until it has regained it. What clients change
is seen from the mean of the last time, at first from the median, and the fixed length Γ is the median of all lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from acclimate.options import Decay, Share
from acclimate.robust.rule import Judged, Rule, Sent, mean, middle, moved, products


class Known(NamedTuple):
    """What is remembered from one time to the next."""

    origin: list[Tensor]
    reputations: dict[int, float]  # r_i; whoever is new has 1


@dataclass(frozen=True)
class Reputation(Rule):
    """All updates are of one length, and count by how well their clients' have agreed with everybody's so far."""

    decay: Decay = 0.95  # α
    threshold: Share = 1 / 3  # β K: of the mean reputation; below it a client is set aside

    def judge(self, ids: Sequence[int], sent: Sequence[Sent], memory: Known | None) -> Judged:
        origin, before = (middle(sent), dict[int, float]()) if memory is None else memory
        inner = products(sent, origin)
        lengths = inner.diag().sqrt()
        unit = inner / (lengths[:, None] * lengths).clamp(min=1e-300)  # ⟨u_i, u_j⟩ of u_i = Δ_i / ‖Δ_i‖
        r = torch.tensor([before.get(id, 1.0) for id in ids], dtype=torch.float64)
        along = unit @ r.clamp(min=0)  # ⟨u_i, u_g⟩ of u_g = Σ_j r_j u_j
        cosine = along / (r.clamp(min=0) @ along).clamp(min=1e-300).sqrt()
        r = self.decay * r + (1 - self.decay) * cosine  # r_i ← α r_i + (1 − α) cos(u_i, u_g)
        counts = torch.where(r >= self.threshold * r.mean(), r.clamp(min=0), 0.0)
        shares = (counts / counts.mean()).tolist() if counts.any() else [1.0] * len(sent)
        gamma = lengths.quantile(0.5)  # Γ
        factors = torch.where(lengths > 0, gamma / lengths.clamp(min=1e-300), 1.0).tolist()
        level = [moved(origin, own, factor) for own, factor in zip(sent, factors, strict=True)]
        told = {**before, **dict(zip(ids, r.tolist(), strict=True))}
        return Judged(level, shares, Known(mean(level, shares), told))
