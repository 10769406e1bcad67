"""Zoom blur, and the zoom about the centre that snow uses too."""

from __future__ import annotations

from collections import Counter
from functools import cache
from math import ceil

import numpy as np
import torch
from torch import Tensor

from acclimate.data.corruptions.draws import Draws
from acclimate.data.corruptions.filters import on_grid
from acclimate.data.corruptions.levels import to_bytes
from acclimate.data.corruptions.tables import Parameters


def zoom_blur(images: Tensor, parameters: Parameters, draws: Draws) -> Tensor:
    """(x + Σ_z zoom_z(x)) / (n + 1), over n factors z = 1, 1 + step, ..."""
    step, count = parameters
    across, down = _zoom_matrices(images.shape[-1], step, int(count))
    batch, channels, side, _ = images.shape
    rows = images.double().permute(2, 0, 1, 3).reshape(-1, side)  # one image row after another: [H·B·C, W]
    wide = (rows @ across).view(side, batch * channels, -1, side)  # X A_zᵀ for every z
    stacked = wide.permute(2, 0, 1, 3).reshape(-1, batch * channels * side)
    total = (down @ stacked).view(side, batch, channels, side).permute(1, 2, 0, 3)  # Σ_z n_z A_z (X A_zᵀ)
    return to_bytes(total.div(count + 1))


@cache
def _zoom_matrices(side: int, step: float, count: int) -> tuple[Tensor, Tensor]:
    """All A_zᵀ side by side, and all A_z side by side, times how often each occurs.

    On a grid of 2^-20, bytes times two weights have 48 bits and 27 such terms 53: all sums are exact in float64.
    """
    counts = Counter([(side, 0, side), *(crop(side, factor) for factor in factors(step, count))])
    matrices = [torch.from_numpy(on_grid(_matrix(side, *part), 20)) for part in counts]
    down = [matrix * times for matrix, times in zip(matrices, counts.values(), strict=True)]
    return torch.cat([matrix.T for matrix in matrices], 1).contiguous(), torch.cat(down, 1).contiguous()


def factors(step: float, count: int) -> list[float]:
    """1, 1 + step, ... as numpy's arange has them: its step is (1 + step) − 1, which rounding makes a little larger."""
    return [1 + i * ((1 + step) - 1) for i in range(count)]


def zoom(layer: Tensor, factor: float) -> Tensor:
    """Float64 [B, H, W], enlarged about the centre: tap by tap, see `filters`."""
    low, high, share = _taps(layer.shape[-1], *crop(layer.shape[-1], factor))
    top, bottom = layer[:, low] * (1 - share[:, None]), layer[:, high] * share[:, None]
    layer = top.add_(bottom)
    return (layer[:, :, low] * (1 - share)).add_(layer[:, :, high] * share)


def crop(side: int, factor: float) -> tuple[int, int, int]:
    """Side of the middle part, its first row, and the side it is enlarged to.

    >>> crop(32, 2.25)
    (15, 8, 34)
    """
    part = ceil(side / factor)
    return part, (side - part) // 2, round(part * factor)


def _taps(side: int, part: int, top: int, enlarged: int) -> tuple[Tensor, Tensor, Tensor]:
    """For every row of the result, the two rows it lies between and the share of the second.

    Linear with corners aligned (source = i · (part − 1) / (enlarged − 1)), the middle `side` rows kept.
    """
    source = (np.arange(side) + (enlarged - side) // 2) * ((part - 1) / (enlarged - 1))
    low = np.minimum(np.floor(source).astype(int), part - 1)
    high = np.minimum(low + 1, part - 1)
    return torch.from_numpy(low + top), torch.from_numpy(high + top), torch.from_numpy(source - low)


def _matrix(side: int, part: int, top: int, enlarged: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    low, high, share = (each.numpy() for each in _taps(side, part, top, enlarged))
    matrix = np.zeros((side, side))
    matrix[np.arange(side), low] += 1 - share
    matrix[np.arange(side), high] += share
    return matrix
