"""Local: everybody keeps what it uploaded (the identity matrix)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from acclimate.aggregators.mixing import Matrix
from acclimate.contracts import Upload


@dataclass(frozen=True)
class Local(Matrix):
    """W = I. Not the same as no aggregator: the order is adapt, exchange, predict."""

    def weights(self, uploads: Sequence[Upload]) -> Tensor:
        return torch.eye(len(uploads), dtype=torch.float64)
