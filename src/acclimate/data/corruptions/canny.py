"""Canny's edge detector on bytes, in integers, for a batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

TAN = 13573  # tan 22.5° in 15-bit fixed point


def edges(images: Tensor, low: int, high: int) -> Tensor:
    """Bool [B, 1, S, S]: ridges of the gradient above `low` that are connected with one above `high`."""
    dx, dy = _sobel(images)
    size = dx.abs() + dy.abs()
    candidates = _is_ridge(dx, dy, size) & (size > low)
    strong = candidates & (size > high)
    while True:  # hysteresis: grow the strong ones among the candidates
        grown = (F.max_pool2d(strong.float(), 3, stride=1, padding=1) > 0) & candidates
        if torch.equal(grown, strong):
            return strong
        strong = grown


def _sobel(images: Tensor) -> tuple[Tensor, Tensor]:
    x = F.pad(images.double(), (1,) * 4, mode="replicate").long()
    down = x[..., :-2, :] + 2 * x[..., 1:-1, :] + x[..., 2:, :]
    across = x[..., :-2] + 2 * x[..., 1:-1] + x[..., 2:]
    return down[..., 2:] - down[..., :-2], across[..., 2:, :] - across[..., :-2, :]


def _is_ridge(dx: Tensor, dy: Tensor, size: Tensor) -> Tensor:
    """Larger than the neighbours along the gradient, in four sectors; outside the image the gradient is 0."""
    side = size.shape[-1]
    padded = F.pad(size, (1,) * 4)

    def at(row: int, column: int) -> Tensor:
        return padded[..., 1 + row : 1 + row + side, 1 + column : 1 + column + side]

    x, y = dx.abs(), dy.abs() << 15
    flat = y < x * TAN
    steep = y > x * TAN + (x << 16)  # tan 67.5° = tan 22.5° + 2
    falling = torch.sign(dx) * torch.sign(dy) >= 0  # down-right and up-left
    horizontal = (size > at(0, -1)) & (size >= at(0, 1))
    vertical = (size > at(-1, 0)) & (size >= at(1, 0))
    down = (size > at(-1, -1)) & (size > at(1, 1))
    up = (size > at(-1, 1)) & (size > at(1, -1))
    return torch.where(flat, horizontal, torch.where(steep, vertical, torch.where(falling, down, up)))
