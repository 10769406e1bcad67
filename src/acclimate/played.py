"""Streams played with labelled examples: shifts, uneven classes and stretches without information, drawn at random.

Whatever is random is drawn from torch's default generator.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def drawn_classes(y: Tensor, classes: int) -> Tensor:
    """How often each example is shown: all classes alike, a few of them mostly, or one alone."""
    there = y.unique()
    favoured = there[torch.randperm(len(there))[: int(torch.randint(1, 4, ()))]]
    kind = torch.rand(())
    others = 1.0 if kind < 0.5 else 0.05 if kind < 0.8 else 0.0
    share = torch.full((classes,), others).index_fill_(0, favoured, 1.0)
    return (share / torch.bincount(y, minlength=classes).clamp(min=1))[y]


def drawn_shift(x: Tensor, shifted: bool) -> Callable[[Tensor], Tensor]:
    """A shift of some kind and strength, or none; what is no image gets noise, another scale, offset or tone only."""
    if not shifted or not x.is_floating_point():
        return lambda batch: batch
    least, most, spread = float(x.min()), float(x.max()), float(x.std())
    kinds = (*_OF_ANYTHING, *(_OF_IMAGES if x.dim() == 4 else ()))
    kind, strength = kinds[int(torch.randint(len(kinds), ()))], float(torch.rand(()))
    sign = 1.0 if torch.rand(()) < 0.5 else -1.0

    def change(batch: Tensor) -> Tensor:
        unit = (batch - least) / max(most - least, 1e-12)
        shown = kind(unit, sign * strength, spread / max(most - least, 1e-12))
        changed: Tensor = least + (most - least) * shown.clamp(0, 1)
        return changed

    return change


# Shifts of a batch in [0, 1], by a strength from -1 to 1 and the spread of the data there.


def _noise(x: Tensor, strength: float, spread: float) -> Tensor:
    return x + 2.0 * abs(strength) * spread * torch.randn_like(x)


def _contrast(x: Tensor, strength: float, spread: float) -> Tensor:
    mean = x.flatten(1).mean(1).view(-1, *[1] * (x.dim() - 1))
    return mean + (1 - 0.98 * abs(strength)) * (x - mean)


def _offset(x: Tensor, strength: float, spread: float) -> Tensor:
    return x + 2.0 * strength * spread


def _tone(x: Tensor, strength: float, spread: float) -> Tensor:
    return x.clamp(0, 1).pow(4.0**strength)


def _blur(x: Tensor, strength: float, spread: float) -> Tensor:
    """In all directions, or along one."""
    size = 3 if abs(strength) < 0.4 else 5 if abs(strength) < 0.8 else 7
    high, wide = (size, size) if torch.rand(()) < 0.5 else (size, 1) if strength > 0 else (1, size)
    room = [wide // 2, wide // 2, high // 2, high // 2]
    return F.avg_pool2d(F.pad(x, room, mode="replicate"), (high, wide), stride=1)


def _coarse(x: Tensor, strength: float, spread: float) -> Tensor:
    """Fewer pixels, as wide as before."""
    high, wide = (max(1, round(side * (1 - 0.75 * abs(strength)))) for side in x.shape[2:])
    return F.interpolate(F.adaptive_avg_pool2d(x, (high, wide)), x.shape[2:])


def _haze(x: Tensor, strength: float, spread: float) -> Tensor:
    """A cloud before each image."""
    cloud = F.interpolate(torch.rand(len(x), 1, 3, 3, dtype=x.dtype), x.shape[2:], mode="bilinear")
    return x + 0.8 * abs(strength) * (cloud - x)


_OF_ANYTHING = (_noise, _contrast, _offset, _tone)
_OF_IMAGES = (_blur, _coarse, _haze)


def nothing(x: Tensor, count: int) -> Tensor:
    """Examples without any information: noise, or one value everywhere."""
    noise = torch.rand(count, *x.shape[1:], dtype=x.dtype)
    level = noise if torch.rand(()) < 0.5 else torch.rand(()).to(x.dtype).expand_as(noise)
    return x.min() + (x.max() - x.min()) * level
