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
