"""Weighted sums over neighbours whose result for an image is the same bits in any batch.

Two ways. Sums of bytes times weights on a grid of 2^-40 are exact in float64, so their order cannot matter; library
kernels may compute them. Other sums are added tap by tap, each product and each sum rounded by itself.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

Weights = NDArray[np.float64]


def on_grid(weights: Weights, bits: int) -> Weights:
    """Weights rounded to multiples of 2^-bits."""
    return np.asarray(np.round(weights * 2.0**bits) / 2.0**bits)


def gaussian(x: Tensor, sigma: float) -> Tensor:
    """G(σ) on float64 [B, C, H, W]: radius ⌊4σ + ½⌋, the border repeats; rows first, as scipy does."""
    radius = int(4 * sigma + 0.5)
    if radius == 0:
        return x
    weights = gaussian_weights(radius, sigma)
    x = symmetric_sum(F.pad(x, (0, 0, radius, radius), mode="replicate"), weights, dim=2)
    return symmetric_sum(F.pad(x, (radius, radius, 0, 0), mode="replicate"), weights, dim=3)


def mirrored_gaussian(x: Tensor, sigma: float) -> Tensor:
    """A Gaussian cut at 3σ whose border mirrors half-sample symmetrically, also wider than the image itself."""
    radius = int(3 * sigma + 0.5)
    weights = gaussian_weights(radius, sigma)
    for dim in (2, 3):
        x = symmetric_sum(x.index_select(dim, mirror(x.shape[dim], radius)), weights, dim)
    return x


def gaussian_weights(radius: int, sigma: float) -> Weights:
    """w_t ∝ exp(−t² / 2σ²), t = −radius, ..., radius."""
    t = np.arange(-radius, radius + 1)
    weights = np.exp(-0.5 / (sigma * sigma) * t**2)
    return np.asarray(weights / weights.sum())


def mirror(side: int, radius: int) -> Tensor:
    """Where positions −radius, ..., side + radius − 1 lie in ... 1 0 | 0 1 ... side−1 | side−1 ...

    >>> mirror(3, 4).tolist()
    [2, 2, 1, 0, 0, 1, 2, 2, 1, 0, 0]
    """
    place = torch.arange(-radius, side + radius) % (2 * side)
    return torch.minimum(place, 2 * side - 1 - place)


def symmetric_sum(padded: Tensor, weights: Weights, dim: int) -> Tensor:
    """Σ_t w_t x_{i+t} for symmetric weights: the centre, then pairs from the outermost inwards."""
    radius = len(weights) // 2
    side = padded.shape[dim] - 2 * radius
    total = padded.narrow(dim, radius, side) * float(weights[radius])
    for t in range(radius, 0, -1):
        pair = padded.narrow(dim, radius - t, side) + padded.narrow(dim, radius + t, side)
        total += pair.mul_(float(weights[radius - t]))
    return total


def correlate(images: Tensor, kernel: Weights) -> Tensor:
    """Float64 correlation of bytes with a small square kernel; the border reflects without repeating the edge pixel."""
    kernel = on_grid(kernel, 40)  # 8 + 40 bits and a sum near 1: exact
    radius = len(kernel) // 2
    side = images.shape[-1]
    padded = F.pad(images.double(), (radius,) * 4, mode="reflect")
    total = torch.zeros(images.shape, dtype=torch.float64)
    for row, column in zip(*np.nonzero(kernel), strict=True):
        tap = padded[:, :, row : row + side, column : column + side]
        total.add_(tap, alpha=float(kernel[row, column]))
    return total
