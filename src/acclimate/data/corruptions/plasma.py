"""The plasma fractal of fog."""

from __future__ import annotations

import torch
from torch import Tensor


def plasma(roughness: list[Tensor], decay: float) -> Tensor:
    """The diamond-square fractal [B, n, n] on a torus, scaled to 0..1.

    Level l has [B, 3, 2^l, 2^l] numbers uniform on (−1, 1): for the centres, for the midpoints on the rows of corners,
    for those on the rows of centres. They are scaled by w², w = 100 / decay^l.
    """
    side = 2 ** len(roughness)
    heights = torch.zeros(len(roughness[0]), side, side, dtype=torch.float64)
    for level, rough in enumerate(roughness):
        _refine(heights, side >> level, rough * (100 / decay**level) ** 2)
    low, high = heights.amin((1, 2), keepdim=True), heights.amax((1, 2), keepdim=True)
    return (heights - low) / (high - low)


def _refine(heights: Tensor, step: int, rough: Tensor) -> None:
    half = step // 2
    corners, centres = heights[:, ::step, ::step], heights[:, half::step, half::step]
    pairs = corners + corners.roll(-1, 1)
    centres[:] = (pairs + pairs.roll(-1, 2)) / 4 + rough[:, 0]
    above = centres + centres.roll(1, 1)  # the centres above and below a row of corners
    heights[:, ::step, half::step] = (above + corners + corners.roll(-1, 2)) / 4 + rough[:, 1]
    beside = centres + centres.roll(1, 2)  # the centres left and right of a column of corners
    heights[:, half::step, ::step] = (beside + corners + corners.roll(-1, 1)) / 4 + rough[:, 2]
