"""Image files, one after another, at one size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from acclimate.data.pictures import open_image
from acclimate.errors import MissingData

KINDS = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"}
CHUNK = 500


def is_image(path: Path) -> bool:
    """Whether a file looks like an image by its name; hidden files do not."""
    return path.suffix.lower() in KINDS and not path.name.startswith(".") and path.is_file()


def read_images(
    paths: Sequence[Path], size: tuple[int, int], channels: int, *, upright: bool = False
) -> Iterator[NDArray[np.uint8]]:
    """The images as uint8 [n, height, width, channels], some hundred at a time; resized with Lanczos."""
    for start in range(0, len(paths), CHUNK):
        yield np.stack([read_image(path, size, channels, upright=upright) for path in paths[start : start + CHUNK]])


def read_image(path: Path, size: tuple[int, int], channels: int, *, upright: bool = False) -> NDArray[np.uint8]:
    """One image [height, width, channels]; `upright` turns photographs as their camera noted."""
    from PIL import Image, ImageOps

    try:
        with open_image(path) as found:
            if found.mode[0] in "IF":
                raise OSError(f"mode {found.mode}, not 8 bits per channel")
            image = ImageOps.exif_transpose(found) if upright else found
            image = image.convert("L" if channels == 1 else "RGB")
            if (image.height, image.width) != size:
                image = image.resize((size[1], size[0]), Image.Resampling.LANCZOS)
            return np.asarray(image).reshape(*size, channels)
    except Exception as error:  # whatever a decoder does with a damaged file
        raise MissingData(f"{path}: expected an image, found: {str(error) or type(error).__name__}") from error
