"""Blur: Gaussian, out of focus, and through frosted glass."""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor

from acclimate.data.corruptions.draws import Draws
from acclimate.data.corruptions.filters import Weights, correlate, gaussian
from acclimate.data.corruptions.levels import to_bytes
from acclimate.data.corruptions.tables import Parameters


def gaussian_blur(images: Tensor, parameters: Parameters, draws: Draws) -> Tensor:
    """G(σ) per channel."""
    (sigma,) = parameters
    return _smooth(images, sigma)


def _smooth(images: Tensor, sigma: float) -> Tensor:
    return to_bytes(gaussian(images.double().div_(255), sigma).mul_(255))


def defocus_blur(images: Tensor, parameters: Parameters, draws: Draws) -> Tensor:
    """Correlation with a disk; the border reflects."""
    radius, alias = parameters
    return to_bytes(correlate(images, disk(radius, alias)))


@cache
def disk(radius: float, alias: float) -> Weights:
    """X² + Y² ≤ r² divided by its sum, then a Gaussian of 3x3 (r ≤ 8) or 5x5; not normalised again.

    A large disk touches the edge of its grid, where the smoothing reflects it: its sum may exceed 1 by a percent.
    """
    half, reach = (8, 1) if radius <= 8 else (int(radius), 2)
    y, x = np.mgrid[-half : half + 1, -half : half + 1]
    kernel = (x**2 + y**2 <= radius**2).astype(np.float32)
    kernel /= kernel.sum()
    t = np.arange(-reach, reach + 1)
    weights = np.exp(-(t**2) / (2 * alias**2))
    weights = (weights / weights.sum()).astype(np.float32)
    for axis in (1, 0):
        padded = np.pad(kernel, [(reach * (a == axis), reach * (a == axis)) for a in (0, 1)], mode="reflect")
        parts = [w * padded.take(np.arange(len(kernel)) + i, axis) for i, w in enumerate(weights)]
        kernel = np.sum(parts, axis=0, dtype=np.float32)
    used = np.flatnonzero((kernel > 1e-12).any(0))  # the rest is zero on the grid of `correlate`
    return np.asarray(kernel[used[0] : used[-1] + 1, used[0] : used[-1] + 1], dtype=np.float64)


def glass_blur(images: Tensor, parameters: Parameters, draws: Draws) -> Tensor:
    """Pixels copied from random neighbours, between two blurs."""
    sigma, delta, passes = parameters
    reach, side = int(delta), images.shape[-1] - 2 * int(delta)
    return shuffle(images, sigma, reach, draws.integers(-reach, reach, int(passes), side, side, 2))


def shuffle(images: Tensor, sigma: float, delta: int, offsets: Tensor) -> Tensor:
    """Blur, copy from neighbours, blur. Offsets [B, passes, n, n, 2] hold (dx, dy) in the order of visits.

    A pass visits (h, w) from (S−δ, S−δ) backwards to (δ+1, δ+1) and copies (h+dy, w+dx) into it. (The published code
    writes a swap, but on views of one array: the second half of the swap does nothing.)
    """
    batch, channels, side, _ = images.shape
    blurred = _smooth(images, sigma).flatten(2)
    source = torch.arange(side * side).expand(batch, -1)
    for once in offsets.unbind(1):
        source = source.gather(1, _resolve(once, side, delta))
    blurred = blurred.gather(2, source[:, None].expand(-1, channels, -1))
    return _smooth(blurred.view_as(images), sigma)


def _resolve(offsets: Tensor, side: int, delta: int) -> Tensor:
    """Where each pixel comes from after one pass, as an index into the pass's input."""
    visited = slice(delta + 1, side - delta + 1)
    steps = (offsets[..., 1] * side + offsets[..., 0]).flip(1, 2)  # flipped: from visiting order to raster order
    here = torch.arange(side * side)
    source = here.view(side, side).repeat(len(offsets), 1, 1)
    source[:, visited, visited] += steps
    source = source.flatten(1)
    inside = torch.zeros(side, side, dtype=torch.bool)
    inside[visited, visited] = True
    pending = (source > here) & inside.flatten()[source]  # copies of pixels that this pass has already written
    while pending.any():  # follow the pointers, doubling their reach
        pending, source = pending & pending.gather(1, source), source.where(~pending, source.gather(1, source))
    return source
