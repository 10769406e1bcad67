"""What can happen to images on their way to a client: noise, blur, contrast, rotation.

A shift maps uint8 images [B, C, H, W] to uint8 images. What it draws for an image depends on the seed and the
image's id only, never on the batch around it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate.options import NonNegative, Positive


class Shift(Protocol):
    """A change of images, with a name for tables."""

    @property
    def name(self) -> str: ...

    def __call__(self, images: Tensor, ids: Sequence[int], seed: int) -> Tensor: ...


@dataclass(frozen=True)
class Clean:
    """No change."""

    name: str = "clean"

    def __call__(self, images: Tensor, ids: Sequence[int], seed: int) -> Tensor:
        return images


@dataclass(frozen=True)
class Noise:
    """Independent Gaussian noise on every pixel, `std` as a share of the full range."""

    std: NonNegative

    @property
    def name(self) -> str:
        return f"noise {self.std:g}"

    def __call__(self, images: Tensor, ids: Sequence[int], seed: int) -> Tensor:
        noise = torch.stack([torch.randn(images.shape[1:], generator=_generator(seed, i)) for i in ids])
        return _to_bytes(images / 255 + self.std * noise)


@dataclass(frozen=True)
class Blur:
    """Gaussian blur, `sigma` in pixels; the border repeats."""

    sigma: Positive

    @property
    def name(self) -> str:
        return f"blur {self.sigma:g}"

    def __call__(self, images: Tensor, ids: Sequence[int], seed: int) -> Tensor:
        radius = int(4 * self.sigma + 0.5)
        weights = torch.exp(-0.5 * (torch.arange(-radius, radius + 1) / self.sigma) ** 2)
        weights = weights / weights.sum()
        flat = (images / 255).flatten(0, 1).unsqueeze(1)  # one channel at a time
        flat = F.conv2d(F.pad(flat, (radius, radius, 0, 0), mode="replicate"), weights.view(1, 1, 1, -1))
        flat = F.conv2d(F.pad(flat, (0, 0, radius, radius), mode="replicate"), weights.view(1, 1, -1, 1))
        return _to_bytes(flat.view_as(images))


@dataclass(frozen=True)
class Contrast:
    """Distances from the image's mean times `factor`; negative factors invert."""

    factor: float

    @property
    def name(self) -> str:
        return f"contrast {self.factor:g}"

    def __call__(self, images: Tensor, ids: Sequence[int], seed: int) -> Tensor:
        x = images / 255
        mean = x.mean((2, 3), keepdim=True)
        return _to_bytes((x - mean) * self.factor + mean)


@dataclass(frozen=True)
class Brightness:
    """Add `amount`, as a share of the full range."""

    amount: float

    @property
    def name(self) -> str:
        return f"brightness {self.amount:+g}"

    def __call__(self, images: Tensor, ids: Sequence[int], seed: int) -> Tensor:
        return _to_bytes(images / 255 + self.amount)


@dataclass(frozen=True)
class Rotation:
    """Turn by `degrees` counter-clockwise; what enters from outside is black."""

    degrees: float

    @property
    def name(self) -> str:
        return f"rotation {self.degrees:g}"

    def __call__(self, images: Tensor, ids: Sequence[int], seed: int) -> Tensor:
        angle = torch.deg2rad(torch.tensor(self.degrees))
        cos, sin = torch.cos(angle), torch.sin(angle)
        turn = torch.stack([torch.stack([cos, -sin, cos * 0]), torch.stack([sin, cos, cos * 0])])
        grid = F.affine_grid(turn.expand(len(images), 2, 3), list(images.shape), align_corners=False)
        return _to_bytes(F.grid_sample(images / 255, grid, align_corners=False))


@dataclass(frozen=True)
class Both:
    """One shift after another."""

    first: Shift
    then: Shift

    @property
    def name(self) -> str:
        return f"{self.first.name} + {self.then.name}"

    def __call__(self, images: Tensor, ids: Sequence[int], seed: int) -> Tensor:
        return self.then(self.first(images, ids, seed), ids, seed + 1)  # two noises are not the same noise


@dataclass(frozen=True)
class OneOf:
    """Another shift for every image, each as likely as any other."""

    shifts: tuple[Shift, ...]
    name: str

    def __call__(self, images: Tensor, ids: Sequence[int], seed: int) -> Tensor:
        chosen = [int(_hash(seed, i) % len(self.shifts)) for i in ids]
        changed = images.clone()
        for number, shift in enumerate(self.shifts):
            rows = [row for row, choice in enumerate(chosen) if choice == number]
            if rows:
                changed[rows] = shift(images[rows], [ids[row] for row in rows], seed)
        return changed


def _to_bytes(x: Tensor) -> Tensor:
    return (x.clamp(0, 1) * 255).round().to(torch.uint8)


def _generator(seed: int, image: int) -> torch.Generator:
    return torch.Generator().manual_seed(_hash(seed, image))


def _hash(seed: int, image: int) -> int:
    digest = hashlib.blake2b(f"{seed}/{image}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1
