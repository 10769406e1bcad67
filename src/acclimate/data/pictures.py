"""Opening image files that may claim anything."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_PIXELS = 50_000_000  # of one image


def open_image(source: Path | IO[bytes]) -> Image:
    """An image by its header: nothing is decoded yet. ValueError: it claims more pixels than are read."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit here is lower
        try:
            image = Image.open(source)
        except Image.DecompressionBombError as error:
            raise ValueError(f"more pixels than the {MOST_PIXELS:,} that are possible") from error
    if image.width * image.height > MOST_PIXELS:
        image.close()
        raise ValueError(f"{image.width}x{image.height} pixels, at most {MOST_PIXELS:,} possible")
    return image
