"""What image processing leaves behind: pixelate and JPEG compression."""

from __future__ import annotations

from functools import cache
from io import BytesIO

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from acclimate.data.corruptions.draws import Draws
from acclimate.data.corruptions.tables import Parameters


def pixelate(images: Tensor, parameters: Parameters, draws: Draws) -> Tensor:
    """Means of boxes: rows, rounded to bytes, then columns, rounded; PIL's arithmetic in 22-bit fixed point."""
    side = images.shape[-1]
    boxes = _boxes(side, int(side * parameters[0]))
    x = (images.flatten(0, 2).double() @ boxes.T).add_(0.5).floor_()
    return (boxes @ x.view(-1, side, side)).add_(0.5).to(torch.uint8).view_as(images)


@cache
def _boxes(side: int, small: int) -> Tensor:
    """[S, S]: each row the weights of the box that lands on this pixel after reduction and nearest enlargement.

    Row i shows small pixel ⌊(i + ½) m / S⌋, the equal-weighted pixels from ⌊centre − ½scale + ½⌋ to
    ⌊centre + ½scale + ½⌋ − 1. Bytes times 22-bit weights are exact in float64.
    """
    matrix = torch.zeros(side, side, dtype=torch.float64)
    scale = side / small
    for i in range(side):
        centre = (int((i + 0.5) * small / side) + 0.5) * scale
        first, end = int(centre - scale / 2 + 0.5), min(int(centre + scale / 2 + 0.5), side)
        matrix[i, first:end] = int(2**22 / (end - first) + 0.5) / 2**22
    return matrix


def jpeg_compression(images: Tensor, parameters: Parameters, draws: Draws) -> Tensor:
    """Saved and opened again by the real codec: no batched form of it is exact and shorter."""
    (quality,) = parameters
    result = np.empty((len(images), *images.shape[2:], 3), dtype=np.uint8)
    for place, pixels in zip(result, images.permute(0, 2, 3, 1).contiguous().numpy(), strict=True):
        file = BytesIO()
        Image.fromarray(pixels).save(file, "JPEG", quality=int(quality))
        place[:] = np.asarray(Image.open(file))
    return torch.from_numpy(result).permute(0, 3, 1, 2).contiguous()
