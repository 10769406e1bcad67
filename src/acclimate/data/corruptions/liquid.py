"""Spatter: drops of water (severities 1 to 3) or mud (4 and 5) on the lens."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate.data.corruptions.canny import edges
from acclimate.data.corruptions.draws import Draws
from acclimate.data.corruptions.filters import gaussian
from acclimate.data.corruptions.levels import to_bytes, wrapped
from acclimate.data.corruptions.tables import Parameters

WATER, MUD = (175, 238, 238), (63, 42, 20)
ONE = 2**16  # distances are 16.16 fixed point
FAR = 20 * ONE


def spatter(images: Tensor, parameters: Parameters, draws: Draws) -> Tensor:
    """Drops where smoothed noise N(loc, scale²) is high."""
    loc, scale, *_ = parameters
    noise = draws.normal(*images.shape[2:]).double().mul_(scale).add_(loc)
    return splash(images, parameters, noise)


def splash(images: Tensor, parameters: Parameters, noise: Tensor) -> Tensor:
    """L = G(σ) of the noise [B, S, S], zero below the threshold; then water or mud."""
    _, _, sigma, threshold, strength, mud = parameters
    liquid = gaussian(noise.double()[:, None], sigma)
    liquid = liquid.where(liquid >= threshold, 0)
    x = images.double().div_(255)
    if mud:
        cover = gaussian((liquid > threshold).double(), strength)
        cover = cover.where(cover >= 0.8, 0)
        return to_bytes((x * (1 - cover) + cover * _colour(MUD)).mul_(255))
    return to_bytes((x + _water(liquid, strength) * _colour(WATER)).mul_(255))


def _colour(rgb: tuple[int, int, int]) -> Tensor:
    return torch.tensor(rgb, dtype=torch.float64).view(1, 3, 1, 1) / 255


def _water(liquid: Tensor, strength: float) -> Tensor:
    """The light m = l · d / max(l · d) · strength: thick where there is liquid, lit by how far its edges are."""
    drops = wrapped(liquid * 255)  # very thick liquid starts again at zero (severity 3), as published
    depth = _box(distance(edges(drops, low=50, high=150)).clamp_(max=FAR)) // (9 * ONE)  # ⌊3x3 mean⌋
    depth = _emboss(equalize(depth))
    depth = (_box(depth) + 4) // 9  # 3x3 mean, rounded
    light = (drops * depth).double()
    return light / light.amax((2, 3), keepdim=True).clamp_(min=1) * strength


def _taps(x: Tensor, reach: int, mode: str) -> Tensor:
    """[(2·reach + 1)², *x.shape]: the neighbourhood of every pixel, row by row."""
    side = x.shape[-1]
    padded = F.pad(x.double(), (reach,) * 4, mode=mode).to(x.dtype)
    span = range(2 * reach + 1)
    return torch.stack([padded[..., i : i + side, j : j + side] for i in span for j in span])


def _box(x: Tensor) -> Tensor:
    return _taps(x, 1, "reflect").sum(0)


def _emboss(x: Tensor) -> Tensor:
    kernel = torch.tensor([-2, -1, 0, -1, 1, 1, 0, 1, 2]).view(9, 1, 1, 1, 1)
    return (_taps(x, 1, "reflect") * kernel).sum(0).clamp_(0, 255)


def distance(edge: Tensor) -> Tensor:
    """To the nearest edge, in 16.16 fixed point, cut at 20: chamfer steps of 1, 1.4 and 2.1969 (5x5 mask)."""
    far = torch.full(edge.shape, FAR).masked_fill_(edge, 0)
    side = edge.shape[-1]
    lengths = {1: ONE, 2: round(1.4 * ONE), 5: round(2.1969 * ONE)}  # by squared length of the step
    steps = [(i, j, lengths[i * i + j * j]) for i in range(-2, 3) for j in range(-2, 3) if i * i + j * j in lengths]
    while True:
        padded = F.pad(far, (2,) * 4, value=FAR)
        nearer = far
        for i, j, length in steps:
            nearer = torch.minimum(nearer, padded[..., 2 + i : 2 + i + side, 2 + j : 2 + j + side] + length)
        if torch.equal(nearer, far):
            return far
        far = nearer


def equalize(x: Tensor) -> Tensor:
    """Equalised histogram of [B, 1, S, S]: first bin → 0, others round(255 (cum − h_first) / (N − h_first))."""
    flat = x.flatten(1)
    counts = torch.zeros(len(flat), 256, dtype=torch.int64).scatter_add_(1, flat, torch.ones_like(flat))
    lowest = flat.amin(1, keepdim=True)
    first = counts.gather(1, lowest)
    rest = flat.shape[1] - first
    scale = 255.0 / rest.float()
    levels = ((counts.cumsum(1) - first).float() * scale).round().long().clamp_(0, 255)
    equal = levels.gather(1, flat).where(rest > 0, flat)  # a constant image stays
    return equal.view_as(x)
