"""All corruptions of a few images on one sheet, to look at."""

from __future__ import annotations

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from acclimate.data.corruptions import EXTRA, KINDS, SEVERITIES, corrupt
from acclimate.errors import MissingData

MARGIN, LEFT, TOP, LINE = 4, 124, 18, 12


def contact_sheet(images: Tensor, seed: int) -> Image.Image:
    """A row for each kind; for each of the uint8 images [B, C, S, S] a column as it is and one for each severity.

    Without textures the row of frost stays empty.
    """
    side = max(1, 64 // images.shape[-1]) * images.shape[-1]  # small images are enlarged
    columns = len(images) * (1 + len(SEVERITIES))
    step = side + MARGIN
    sheet = Image.new("RGB", (LEFT + columns * step, TOP + len(KINDS + EXTRA) * step), "white")
    pen = ImageDraw.Draw(sheet)
    for column in range(columns):
        severity = column % (1 + len(SEVERITIES))
        pen.text((LEFT + column * step, MARGIN), f"severity {severity}" if severity else "clean", fill="black")
    for row, kind in enumerate(KINDS + EXTRA):
        pen.text((MARGIN, TOP + row * step + (side - LINE) // 2), kind, fill="black")
        try:
            versions = torch.stack([images, *(corrupt(images, kind, severity, seed) for severity in SEVERITIES)], 1)
        except MissingData:
            pen.text((LEFT, TOP + row * step + (side - LINE) // 2), "its textures are not here", fill="black")
            continue
        for column, version in enumerate(versions.flatten(0, 1)):
            sheet.paste(_picture(version, side), (LEFT + column * step, TOP + row * step))
    return sheet


def _picture(image: Tensor, side: int) -> Image.Image:
    pixels = image.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy()
    return Image.fromarray(pixels).resize((side, side), Image.Resampling.NEAREST)
