"""Motion blur along a line of random direction, as ImageMagick computes it."""

from __future__ import annotations

from math import cos, radians, sin

import numpy as np
import torch
from torch import Tensor

from acclimate.data.corruptions.draws import Draws
from acclimate.data.corruptions.filters import on_grid
from acclimate.data.corruptions.tables import Parameters


def motion_blur(images: Tensor, parameters: Parameters, draws: Draws) -> Tensor:
    """Along a line between −45° and 45°."""
    radius, sigma = parameters
    return move(images, int(radius), sigma, draws.uniform().double() * 90 - 45)


def move(images: Tensor, radius: int, sigma: float, degrees: Tensor) -> Tensor:
    """⌊Σ_i k_i v_i + ½/257⌋ over w = 2·radius + 1 taps, one-sided: k_i ∝ exp(−i² / 2σ²), i = 0, ..., w − 1.

    Tap i reads (y + ⌈i sin a − ½⌉, x + ⌈i cos a − ½⌉), clamped to the image. The half of 1/257 is the rounding of
    16-bit sums that are then cut to 8 bits.
    """
    weights = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    weights = on_grid(weights / weights.sum(), 40)  # 8 + 40 bits: the sum is exact
    down = torch.tensor([sin(radians(a)) for a in degrees.tolist()], dtype=torch.float64)
    right = torch.tensor([cos(radians(a)) for a in degrees.tolist()], dtype=torch.float64)
    batch, channels, side, _ = images.shape
    flat = images.double().flatten(2)
    total = torch.full_like(flat, 0.5 / 257)
    place = torch.arange(side)
    for i in np.flatnonzero(weights).tolist():
        y = (place + (i * down - 0.5).ceil().long()[:, None]).clamp_(0, side - 1)
        x = (place + (i * right - 0.5).ceil().long()[:, None]).clamp_(0, side - 1)
        source = (y[:, :, None] * side + x[:, None, :]).view(batch, 1, -1).expand(-1, channels, -1)
        total.add_(flat.gather(2, source), alpha=float(weights[i]))
    return total.to(torch.uint8).view_as(images)
