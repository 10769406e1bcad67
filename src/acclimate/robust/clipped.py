"""Norm clipping of what clients change (Sun et al., 2019, §3.3).

It is seen from the mean of the last time, which after FedAvg is the model that was sent, and at first from the median.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from acclimate.options import Positive
from acclimate.robust.rule import Judged, Rule, Sent, mean, middle, moved, products
from acclimate.trees import Nest


@dataclass(frozen=True)
class Clipped(Rule):
    """Nobody moves further than M; as a rule of thumb, no further than half of the clients do."""

    norm: Positive | Literal["median"] = "median"  # M

    def judge(self, ids: Sequence[int], sent: Sequence[Sent], memory: Nest) -> Judged:
        origin = middle(sent) if memory is None else memory
        lengths = products(sent, origin).diag().sqrt()  # ‖Δw_k‖
        most = float(lengths.quantile(0.5)) if self.norm == "median" else self.norm
        factors = torch.where(lengths > most, most / lengths, 1.0).tolist()
        near = [moved(origin, own, factor) for own, factor in zip(sent, factors, strict=True)]  # Δw / max(1, ‖Δw‖ / M)
        return Judged(near, [1.0] * len(sent), mean(near, [1.0] * len(sent)))
