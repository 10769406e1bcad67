"""pFedGraph: a collaboration graph inferred from model updates (Ye et al., ICML 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from acclimate.aggregators.mixing import drawn, mix, origin, products
from acclimate.contracts import Aggregator, Mix, Upload
from acclimate.options import Positive, Share
from acclimate.params import Params
from acclimate.simplex import to_simplex


@dataclass(frozen=True)
class PFedGraph(Aggregator[Params]):
    """Row i minimises α ‖w_i − p‖² − Σ_j w_ij cos(Δθ_i, Δθ_j) over the simplex, p_j = n_j / n.

    Δθ is what has changed since the start of the test. The quadratic is a multiple of the squared distance to
    p + cos(Δθ_i, ·) / (2 α), so the minimum is that point's projection onto the simplex, computed exactly by sorting.
    Clients that have not moved have a cosine of zero with all, so equal clients average as FedAvg.
    """

    alpha: Positive = 0.8  # α, against concentration
    same: Share = 1.0  # a greater cosine counts as one; 0.9 in the authors' code

    def init(self, start: Sequence[Upload]) -> Params:
        return origin(start)

    def mix(self, state: Params, uploads: Sequence[Upload], slot: int) -> Mix:
        if not uploads:
            return Mix([], state)
        cosine = self._cosines(products(uploads, state))
        n = torch.tensor([upload.weight for upload in uploads], dtype=torch.float64)
        w = to_simplex(n / n.sum() + cosine / (2 * self.alpha))
        return Mix(mix(w, uploads), state, drawn(w, uploads))

    def _cosines(self, inner: Tensor) -> Tensor:
        lengths = inner.diag().sqrt()
        cosine = inner / (lengths[:, None] * lengths).clamp(min=1e-24)  # ⟨Δθ_i, Δθ_j⟩ / ‖Δθ_i‖ ‖Δθ_j‖
        return torch.where(cosine > self.same, 1.0, cosine)
