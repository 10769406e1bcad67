"""FedAvg at test time: everybody gets the mean of all uploads (McMahan et al., AISTATS 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from acclimate.aggregators.mixing import Matrix
from acclimate.contracts import Upload


@dataclass(frozen=True)
class FedAvg(Matrix):
    """W_ij = n_j / n, n_j the number of images in client j's batch."""

    def weights(self, uploads: Sequence[Upload]) -> Tensor:
        n = torch.tensor([upload.weight for upload in uploads], dtype=torch.float64)
        return (n / n.sum()).expand(len(uploads), -1)
