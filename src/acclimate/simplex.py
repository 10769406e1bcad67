"""Distributions: the nearest one to any point."""

from __future__ import annotations

import torch
from torch import Tensor


def to_simplex(points: Tensor) -> Tensor:
    """The nearest distribution to each row: max(y − θ, 0), θ such that it sums to one (Duchi et al., ICML 2008).

    >>> to_simplex(torch.tensor([1.0, 1.0, -3.0]))
    tensor([0.5000, 0.5000, 0.0000])
    """
    ordered = points.sort(-1, descending=True).values
    theta = (ordered.cumsum(-1) - 1) / torch.arange(1, points.shape[-1] + 1, dtype=points.dtype)
    support = (ordered > theta).sum(-1, keepdim=True)  # entries that stay positive
    return (points - theta.gather(-1, support - 1)).clamp_min(0)
