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
    """A shift of some kind and strength, or none; whatever is no image only gets noise, another scale or offset."""
    if not shifted or not x.is_floating_point():
        return lambda batch: batch
    least, most, spread = float(x.min()), float(x.max()), float(x.std())
    kind, strength = int(torch.randint(4 if x.dim() == 4 else 3, ())), float(torch.rand(()))
    sign = 1.0 if torch.rand(()) < 0.5 else -1.0

    def change(batch: Tensor) -> Tensor:
        if kind == 0:
            batch = batch + 2.0 * strength * spread * torch.randn_like(batch)
        elif kind == 1:
            mean = batch.flatten(1).mean(1).view(-1, *[1] * (batch.dim() - 1))
            batch = mean + (1 - 0.9 * strength) * (batch - mean)
        elif kind == 2:
            batch = batch + 2.0 * sign * strength * spread
        else:
            size = 3 if strength < 0.5 else 5
            batch = F.avg_pool2d(F.pad(batch, [size // 2] * 4, mode="replicate"), size, stride=1)
        return batch.clamp(least, most)

    return change


def nothing(x: Tensor, count: int) -> Tensor:
    """Examples without any information: noise, or one value everywhere."""
    noise = torch.rand(count, *x.shape[1:], dtype=x.dtype)
    level = noise if torch.rand(()) < 0.5 else torch.rand(()).to(x.dtype).expand_as(noise)
    return x.min() + (x.max() - x.min()) * level
