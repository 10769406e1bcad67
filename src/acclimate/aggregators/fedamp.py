"""FedAMP: attentive message passing between similar clients (Huang et al., AAAI 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from acclimate.aggregators.mixing import Matrix, products
from acclimate.contracts import Upload
from acclimate.options import Positive, Share

TINY = 1e-30  # where most clients are equal, whoever is not gets nothing


@dataclass(frozen=True)
class FedAMP(Matrix):
    """ξ_ij = α_k A'(‖w_i − w_j‖²) for j ≠ i with A(d) = 1 − e^(−d/σ), and the rest of the row on i itself.

    A'(d) = e^(−d/σ) / σ. The step α_k is given as `attention` = α_k K / σ, so that its default makes equal
    clients average uniformly, and rows stay non-negative for every value up to one. Distances grow with what is
    uploaded, so a number for σ fits some uploads only: σ = 1 leaves everybody alone with statistics of batch norms and
    averages all with parameters that hardly move. The median takes the uploads' own scale, slot by slot.
    """

    revision: ClassVar[int] = 1  # σ was 1

    sigma: Positive | Literal["median"] = "median"  # σ; median: of the squared distances between clients
    attention: Share = 1.0  # α_k K / σ

    def weights(self, uploads: Sequence[Upload]) -> Tensor:
        # Seen from one of them, clients that hardly differ lose no digits in the expansion of the square.
        inner = products(uploads, uploads[0].params)
        distance = (inner.diag()[:, None] + inner.diag() - 2 * inner).clamp(min=0)  # ‖w_i − w_j‖²
        xi = self.attention / len(uploads) * torch.exp(-distance / self._sigma(distance))  # eq. (4)
        xi.fill_diagonal_(0)
        return xi + torch.diag(1 - xi.sum(1))  # ξ_ii = 1 − Σ_{j≠i} ξ_ij

    def _sigma(self, distance: Tensor) -> Tensor | float:
        if self.sigma != "median":
            return self.sigma
        pairs = distance[*torch.triu_indices(len(distance), len(distance), offset=1)]
        return pairs.quantile(0.5).clamp(min=TINY) if len(pairs) else 1.0
