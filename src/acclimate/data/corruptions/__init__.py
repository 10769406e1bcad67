"""The common corruptions of CIFAR-10-C and ImageNet-C (Hendrycks & Dietterich, ICLR 2019), computed in batches.

Fifteen kinds and four extra ones, each at severities 1 to 5, with the parameters published for the size of the image.
What is drawn for an image depends on the seed and its id only, and so does the result, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from acclimate.data.corruptions.blur import defocus_blur, gaussian_blur, glass_blur
from acclimate.data.corruptions.colour import brightness, contrast, saturate
from acclimate.data.corruptions.digital import jpeg_compression, pixelate
from acclimate.data.corruptions.draws import Draws
from acclimate.data.corruptions.elastic import elastic_transform
from acclimate.data.corruptions.liquid import spatter
from acclimate.data.corruptions.motion import motion_blur
from acclimate.data.corruptions.noise import gaussian_noise, impulse_noise, shot_noise, speckle_noise
from acclimate.data.corruptions.tables import Parameters, parameters
from acclimate.data.corruptions.weather import fog, frost, snow
from acclimate.data.corruptions.zoom import zoom_blur
from acclimate.errors import ConfigError, nearest

Recipe = Callable[[Tensor, Parameters, Draws], Tensor]

_RECIPES: dict[str, Recipe] = {
    "gaussian_noise": gaussian_noise,
    "shot_noise": shot_noise,
    "impulse_noise": impulse_noise,
    "defocus_blur": defocus_blur,
    "glass_blur": glass_blur,
    "motion_blur": motion_blur,
    "zoom_blur": zoom_blur,
    "snow": snow,
    "frost": frost,
    "fog": fog,
    "brightness": brightness,
    "contrast": contrast,
    "elastic_transform": elastic_transform,
    "pixelate": pixelate,
    "jpeg_compression": jpeg_compression,
    "speckle_noise": speckle_noise,
    "gaussian_blur": gaussian_blur,
    "spatter": spatter,
    "saturate": saturate,
}

KINDS: tuple[str, ...] = tuple(_RECIPES)[:15]
EXTRA: tuple[str, ...] = tuple(_RECIPES)[15:]
SEVERITIES = range(1, 6)

_PART = 2**18  # elements worked on at once, so that they stay in the processor's cache


@dataclass(frozen=True)
class Corruption:
    """One kind at one severity, as a shift of images.

    >>> Corruption("fog", 5).name
    'fog 5'
    """

    kind: str
    severity: int

    def __post_init__(self) -> None:
        _refuse(_wrong_choice(self.kind, self.severity))

    @property
    def name(self) -> str:
        return f"{self.kind} {self.severity}"

    def __call__(self, images: Tensor, ids: Sequence[int], seed: int) -> Tensor:
        return corrupt(images, self.kind, self.severity, seed, ids)


def corrupt(images: Tensor, kind: str, severity: int, seed: int, ids: Sequence[int] | None = None) -> Tensor:
    """Corrupt uint8 images [B, C, S, S]; the result is uint8 of the same shape.

    The published parameters for sides of 32, 64 or 224 are taken, whichever is nearest to S. Grey images (C = 1) are
    corrupted as three equal channels and come back as their luma (.299 R + .587 G + .114 B, rounded). `ids` name the
    images: the draws of an image depend on the seed, the kind and its id only; by default they count from 0.

    >>> images = torch.arange(2 * 3 * 32 * 32).view(2, 3, 32, 32).to(torch.uint8)
    >>> both = corrupt(images, "gaussian_noise", 3, seed=0)
    >>> torch.equal(both[1:], corrupt(images[1:], "gaussian_noise", 3, seed=0, ids=[1]))
    True
    """
    ids = range(len(images)) if ids is None else ids
    _refuse(_wrong_choice(kind, severity) + _wrong_images(images, ids))
    recipe, strength = _RECIPES[kind], parameters(kind, severity, images.shape[-1])
    count = max(1, _PART // (3 * images.shape[-1] ** 2))
    result = torch.empty(images.shape, dtype=torch.uint8)
    for start in range(0, len(images), count):
        part = images[start : start + count]
        colour = part.contiguous() if part.shape[1] == 3 else part.repeat(1, 3, 1, 1)
        corrupted = recipe(colour, strength, Draws(seed, kind, ids[start : start + count]))
        result[start : start + count] = corrupted if part.shape[1] == 3 else _luma(corrupted)
    return result


def _luma(images: Tensor) -> Tensor:
    red, green, blue = images.int().unbind(1)
    return ((19595 * red + 38470 * green + 7471 * blue + 2**15) >> 16).to(torch.uint8)[:, None]


def _refuse(problems: list[str]) -> None:
    if problems:
        raise ConfigError(problems, "the corruption")


def _wrong_choice(kind: str, severity: int) -> list[str]:
    problems = []
    if kind not in _RECIPES:
        problems.append(f"kind: unknown corruption {kind!r}; {nearest(kind, _RECIPES)}")
    if severity not in SEVERITIES:
        problems.append(f"severity: expected 1, 2, 3, 4 or 5, found {severity!r}")
    return problems


def _wrong_images(images: Tensor, ids: Sequence[int]) -> list[str]:
    shape, problems = tuple(images.shape), []
    if images.dtype != torch.uint8 or images.ndim != 4 or shape[1] not in (1, 3):
        return [f"images: expected uint8 [B, 1 or 3, S, S], found {images.dtype} {list(shape)}"]
    if shape[2] != shape[3]:
        problems.append(f"images: expected squares, found {shape[2]} x {shape[3]}; crop or resize them first")
    if min(shape[2:]) < 16:
        problems.append(f"images: expected a side of at least 16 pixels, found {min(shape[2:])}; enlarge them first")
    if len(ids) != len(images):
        problems.append(f"ids: expected one for each of {len(images)} images, found {len(ids)}")
    return problems
