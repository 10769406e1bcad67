"""Noise: Gaussian, shot, impulse and speckle. All elements (pixel x channel) are independent."""

from __future__ import annotations

from torch import Tensor

from acclimate.data.corruptions.draws import Draws, poisson
from acclimate.data.corruptions.levels import to_bytes
from acclimate.data.corruptions.tables import Parameters


def gaussian_noise(images: Tensor, parameters: Parameters, draws: Draws) -> Tensor:
    """Gaussian, the same everywhere."""
    (std,) = parameters
    return add_noise(images, draws.normal(*images.shape[1:]).mul_(std))


def add_noise(images: Tensor, noise: Tensor) -> Tensor:
    """The sum x + N(0, c²), the noise as a share of the full range."""
    return to_bytes(noise.mul(255).add_(images))


def speckle_noise(images: Tensor, parameters: Parameters, draws: Draws) -> Tensor:
    """Gaussian, in proportion to the light."""
    (std,) = parameters
    return add_speckle(images, draws.normal(*images.shape[1:]).mul_(std))


def add_speckle(images: Tensor, noise: Tensor) -> Tensor:
    """The sum x + x · N(0, c²)."""
    return to_bytes(noise.mul(images).add_(images))


def shot_noise(images: Tensor, parameters: Parameters, draws: Draws) -> Tensor:
    """Photons counted."""
    (photons,) = parameters
    return count_photons(poisson(images, photons, draws.uniform(*images.shape[1:])), photons)


def count_photons(counts: Tensor, photons: float) -> Tensor:
    """Poisson(x · c) / c."""
    return to_bytes(counts.double().div_(photons).mul_(255))


def impulse_noise(images: Tensor, parameters: Parameters, draws: Draws) -> Tensor:
    """Salt and pepper."""
    (share,) = parameters
    return salt_and_pepper(images, draws.uniform(*images.shape[1:]), draws.uniform(*images.shape[1:]), share)


def salt_and_pepper(images: Tensor, flip: Tensor, salt: Tensor, share: float) -> Tensor:
    """Elements with flip < c become white where salt < ½, else black; flip and salt are uniform on [0, 1)."""
    return images.where(flip >= share, (salt < 0.5).to(images.dtype).mul_(255))
