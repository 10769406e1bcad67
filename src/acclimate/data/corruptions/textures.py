"""The frost photographs: found, decoded and reduced once per process."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from acclimate.data.corruptions.tables import table_side
from acclimate.data.folders import data_folder
from acclimate.errors import MissingData

USED = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")
Pixels = NDArray[np.uint8]  # [H, W, 3]


def frost_textures(side: int) -> list[Tensor]:
    """The five textures [3, h, w] for images of this side.

    As published: for 32 reduced to a fifth by taking the middle of every five pixels, for 64 to 0.3 bilinearly, for 224
    whole. Where a texture is too small for the image (sides from 94 to 143, and from 315) it is enlarged to leave a
    margin of a tenth, which the publication does not do: it fails.
    """
    return _prepared(data_folder(), side)


@cache
def _prepared(folder: Path, side: int) -> list[Tensor]:
    return [torch.from_numpy(_sized(pixels, side).transpose(2, 0, 1).copy()) for pixels in _decoded(folder)]


def _sized(pixels: Pixels, side: int) -> Pixels:
    if table_side(side) == 32:
        return pixels[2::5, 2::5]
    scale = 0.3 if table_side(side) == 64 else 1.0
    if min(pixels.shape[:2]) * scale - 1 < side:
        scale = 1.1 * (side + 1) / min(pixels.shape[:2])
    return pixels if scale == 1 else _resize(pixels, scale)


def _resize(pixels: Pixels, scale: float) -> Pixels:
    """Bilinear without antialiasing, half-pixel centres, in OpenCV's fixed point: 11 bits for each direction."""
    (top, bottom, down), (left, right, across) = (_between(size, scale) for size in pixels.shape[:2])
    wide = pixels.astype(np.int64)
    wide = wide[:, left] * (2048 - across)[:, None] + wide[:, right] * across[:, None]
    upper, lower = wide[top] >> 4, wide[bottom] >> 4
    weight = down[:, None, None]
    mixed = ((upper * (2048 - weight)) >> 16) + ((lower * weight) >> 16)
    return ((mixed + 2) >> 2).astype(np.uint8)


def _between(size: int, scale: float) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The two pixels a new pixel lies between, and the weight of the second in 2048ths."""
    place = ((np.arange(round(size * scale)) + 0.5) / scale - 0.5).clip(0, size - 1)
    low = np.floor(place).astype(np.int64)
    return low, np.minimum(low + 1, size - 1), np.round((place - low) * 2048).astype(np.int64)


def _decoded(folder: Path) -> list[Pixels]:
    files = dict(_files(folder))
    return [np.asarray(Image.open(BytesIO(files[name])).convert("RGB")) for name in USED]


def _files(folder: Path) -> Iterator[tuple[str, bytes]]:
    pack = folder / "frost.npz"
    if pack.is_file():
        with np.load(pack, allow_pickle=False) as arrays:
            buffer, offsets, names = arrays["buf"].tobytes(), arrays["offsets"].tolist(), arrays["names"].tolist()
        for name, start, end in zip(names, offsets[:-1], offsets[1:], strict=True):
            yield str(name), buffer[start:end]
        return
    shipped = _shipped()
    if shipped is None:
        raise MissingData(
            f"frost needs photographs of frost: expected {pack}, or the Python package imagecorruptions, which ships "
            "them, and found neither. Put the pack frost.npz there (or set ACCLIMATE_DATA to the folder that has it), "
            "or run: pip install --no-deps imagecorruptions"
        )
    for name in USED:
        yield name, (shipped / name).read_bytes()


def _shipped() -> Path | None:
    """The folder of the installed package imagecorruptions that has the textures; the package is not imported."""
    spec = find_spec("imagecorruptions")
    folders = spec.submodule_search_locations if spec else None
    candidates = [Path(folder) / "frost" for folder in folders or ()]
    return next((folder for folder in candidates if all((folder / name).is_file() for name in USED)), None)
