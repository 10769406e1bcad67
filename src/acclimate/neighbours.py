"""Labels of the nearest stored features."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def by_neighbours(z: Tensor, stored: Tensor, labels: Tensor, classes: int, k: int, scale: float) -> Tensor:
    """The classes of the k nearest stored features, weighed by exp(−distance / (dimensions · scale)), as shares.

    >>> by_neighbours(torch.zeros(1, 2), torch.tensor([[0.0, 0.0], [3.0, 4.0]]), torch.tensor([1, 0]), 2, 1, 1.0)
    tensor([[0., 1.]])
    """
    distances, nearest = torch.cdist(z, stored).topk(min(k, len(stored)), largest=False)
    weights = (-distances / (z.shape[1] * scale)).softmax(1)  # exp(…), over their sum
    return (F.one_hot(labels[nearest], classes) * weights.unsqueeze(2)).sum(1)
