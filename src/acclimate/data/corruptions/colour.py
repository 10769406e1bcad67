"""Light and colour: brightness, contrast, saturation."""

from __future__ import annotations

import torch
from torch import Tensor

from acclimate.data.corruptions.draws import Draws
from acclimate.data.corruptions.levels import to_bytes
from acclimate.data.corruptions.tables import Parameters


def brightness(images: Tensor, parameters: Parameters, draws: Draws) -> Tensor:
    """In HSV, V ← clip(V + c): the colour times V'/V; black becomes the grey c."""
    (added,) = parameters
    x = images.double()
    value = x.amax(1, keepdim=True)
    brighter = value.add(255 * added).clamp_(max=255)
    return to_bytes(torch.where(value > 0, x.mul_(brighter).div_(value), brighter))


def contrast(images: Tensor, parameters: Parameters, draws: Draws) -> Tensor:
    """(x − mean) · c + mean, mean per image and channel."""
    (factor,) = parameters
    pixels = images.shape[2] * images.shape[3]
    mean = images.sum((2, 3), keepdim=True, dtype=torch.int64).double() / pixels  # of integers: exact in any order
    return to_bytes(images.sub(mean).mul_(factor).add_(mean))


def saturate(images: Tensor, parameters: Parameters, draws: Draws) -> Tensor:
    """In HSV, S ← clip(a S + b): V − (V − x) · S'/S. Greys have hue 0, so with b > 0 they turn reddish."""
    factor, offset = parameters
    x = images.double().div_(255)
    value, least = x.amax(1, keepdim=True), x.amin(1, keepdim=True)
    chroma = value - least
    saturation = torch.where(value > 0, chroma / value, 0)
    stronger = saturation.mul(factor).add_(offset).clamp_(0, 1)
    below = torch.where(chroma > 0, (value - x) / chroma, torch.tensor([0.0, 1.0, 1.0]).view(1, 3, 1, 1))
    return to_bytes(
        value.mul(1 - stronger * below).mul_(255)
    )  # (V − x) / chroma is 0 for the maximum, 1 for the minimum
