"""From numbers on the scale 0..255 back to bytes: by truncation, as in the published data, never by rounding."""

from __future__ import annotations

import torch
from torch import Tensor


def to_bytes(x: Tensor) -> Tensor:
    """Clip to 0..255 and drop the fraction. Overwrites its argument.

    >>> to_bytes(torch.tensor([-1.0, 7.9, 300.0])).tolist()
    [0, 7, 255]
    """
    return x.clamp_(0, 255).to(torch.uint8)


def wrapped(x: Tensor) -> Tensor:
    """Drop the fraction of what is not negative and keep the lowest byte, as the published cast does: 256 becomes 0.

    >>> wrapped(torch.tensor([7.9, 255.9, 300.0])).tolist()
    [7, 255, 44]
    """
    return (x.long() & 255).to(torch.uint8)
