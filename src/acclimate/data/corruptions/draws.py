"""Random numbers with an address: seed, kind, image id, position. What an image gets never depends on its batch.

A counter-based generator (SplitMix64: Steele, Lea & Flood, OOPSLA 2014) is evaluated for a whole batch at once. Normal
and Poisson numbers come from tables of their inverse distribution functions: lookups and comparisons give the same
bits in every lane of every machine, which vectorised logarithms and cosines do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from math import ceil, prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

Words = NDArray[np.uint64]
_STEP = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio, made odd


class Draws:
    """The numbers of a batch of images, drawn in order; each call goes on where the last one ended."""

    def __init__(self, seed: int, kind: str, ids: Sequence[int]) -> None:
        digest = hashlib.blake2b(f"{seed}/{kind}".encode(), digest_size=8).digest()
        addresses = np.array([int(id) % 2**64 for id in ids], dtype=np.uint64)
        self._keys = _mix(_mix(addresses * _STEP) ^ np.uint64(int.from_bytes(digest, "little")))[:, None]
        self._used = 0

    def uniform(self, *shape: int) -> Tensor:
        """Float32 [B, *shape], uniform on [0, 1), multiples of 2^-24."""
        bits = self._bits(np.dtype("<u4"), shape) >> np.uint32(8)
        return torch.from_numpy(bits.astype(np.int32)).float().mul_(2.0**-24)

    def normal(self, *shape: int) -> Tensor:
        """Float32 [B, *shape], standard normal in 65,536 equally likely values."""
        return torch.from_numpy(_normal_table().take(self._bits(np.dtype("<u2"), shape)))

    def integers(self, low: int, high: int, *shape: int) -> Tensor:
        """Int64 [B, *shape], uniform on low, ..., high − 1."""
        bits = self._bits(np.dtype("<u4"), shape).astype(np.uint64)
        return torch.from_numpy((bits * np.uint64(high - low) >> np.uint64(32)).astype(np.int64)).add_(low)

    def _bits(self, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        count = prod(shape)
        words = ceil(count * dtype.itemsize / 8)
        counter = np.arange(self._used + 1, self._used + words + 1, dtype=np.uint64) * _STEP
        self._used += words
        parts = _mix(self._keys + counter).astype("<u8", copy=False).view(dtype)
        return parts[:, :count].reshape(len(self._keys), *shape)


def _mix(z: Words) -> Words:
    """The finaliser of SplitMix64; changes its argument."""
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


@cache
def _normal_table() -> NDArray[np.float32]:
    """The means of 2^16 equally likely slices of the normal distribution, scaled to variance 1."""
    edges = special.ndtri(np.linspace(0, 1, 2**16 + 1))
    density = np.exp(-0.5 * edges**2) / np.sqrt(2 * np.pi)
    means = 2.0**16 * (density[:-1] - density[1:])  # E[z | a < z < b] = (φ(a) − φ(b)) / P(a < z < b)
    return np.asarray(means / means.std(), dtype=np.float32)


def poisson(images: Tensor, photons: float, uniform: Tensor) -> Tensor:
    """Counts, float32: for bytes v the smallest k with u < P(Poisson(photons · v / 255) ≤ k)."""
    first, below = _poisson_table(photons)
    width = below.shape[1]
    value, u = images.numpy(), uniform.numpy()
    row = value.astype(np.int32) * np.int32(width)
    place = row.copy()
    step = width // 2
    while step:  # binary search, all elements side by side
        place += (below.take(place + (step - 1)) <= u) * np.int32(step)
        step //= 2
    return torch.from_numpy(first.take(value) + (place - row).astype(np.float32))


@cache
def _poisson_table(photons: float) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """For each byte, the first count k that occurs, and P(count ≤ k), P(count ≤ k + 1), ...; the last is above 1."""
    rates = photons * np.arange(256) / 255
    first = np.maximum(np.floor(rates - 6.5 * np.sqrt(rates)), 0)  # beyond 6.5 standard deviations: 1 in 10^10
    last = np.ceil(rates + 6.5 * np.sqrt(rates)) + 15  # the upper tail is the longer one
    width = 2 ** ceil(np.log2((last - first).max() + 1))
    below = special.pdtr(first[:, None] + np.arange(width), rates[:, None])
    below[:, -1] = 2.0
    return first.astype(np.float32), below.astype(np.float32)
