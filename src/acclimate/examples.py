"""Labelled images: rows of one shared uint8 array, made float in [0, 1] batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Images:
    """A uint8 array [N, H, W, C], memory-mapped from a `.npy` file or held in memory.

    A mapped array is sent to another process as its path, so all workers share the same pages.
    """

    def __init__(self, array: np.ndarray[Any, np.dtype[np.uint8]] | Path) -> None:
        self.path = array if isinstance(array, Path) else None
        loaded = np.load(array, mmap_mode="c", allow_pickle=False) if isinstance(array, Path) else array
        if loaded.dtype != np.uint8 or loaded.ndim != 4:
            raise ValueError(f"images are uint8 [N, H, W, C]; found {loaded.dtype} {loaded.shape}")
        # Copy-on-write pages: torch wants a writable array, and nothing here ever writes.
        self.pixels = torch.from_numpy(loaded)

    def __reduce__(self) -> tuple[type[Images], tuple[Any]]:
        return type(self), (self.path or self.pixels.numpy(),)

    def __len__(self) -> int:
        return len(self.pixels)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width: the shape of one image as a model sees it."""
        _, height, width, channels = self.pixels.shape
        return channels, height, width

    def bytes(self, rows: Tensor) -> Tensor:
        """The uint8 images [B, C, H, W] of some rows."""
        return self.pixels.index_select(0, rows).permute(0, 3, 1, 2)

    def floats(self, rows: Tensor) -> Tensor:
        """The images of some rows as floats in [0, 1], [B, C, H, W] (channels last in memory)."""
        return self.bytes(rows).float().div_(255)


@dataclass(frozen=True)
class Examples:
    """Some rows of an image array with their labels: one client's training data, or a test batch."""

    images: Images
    labels: Tensor  # int64, one per row below
    rows: Tensor  # int64, which images
    augment: Callable[[Tensor], Tensor] | None = None  # what training shows instead of a batch of images

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def x(self) -> Tensor:
        """All images as floats in [0, 1], [N, C, H, W] (channels last in memory)."""
        return self.images.floats(self.rows)

    @property
    def y(self) -> Tensor:
        """All labels."""
        return self.labels

    def take(self, positions: Tensor) -> Examples:
        """The examples at some positions of this list."""
        return replace(self, labels=self.labels[positions], rows=self.rows[positions])

    def batches(self, size: int, rng: torch.Generator | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """One pass over the examples, shuffled by `rng` if one is given.

        A single example left over at the end joins the batch before it: batch normalisation cannot train
        on one. Whoever shuffles trains, and sees them augmented where that is asked for.
        """
        shuffled = self if rng is None else self.take(torch.randperm(len(self), generator=rng))
        ends = list(range(size, len(self), size)) + [len(self)] * (len(self) > 0)
        if len(ends) > 1 and ends[-1] - ends[-2] == 1:
            del ends[-2]
        augment = None if rng is None else self.augment
        for start, end in pairwise([0, *ends]):
            x = self.images.floats(shuffled.rows[start:end])
            yield x if augment is None else augment(x), shuffled.labels[start:end]


@dataclass(frozen=True)
class Unlabelled:
    """Some rows of an image array without labels: images that everybody has."""

    images: Images
    rows: Tensor  # int64, which images

    def __len__(self) -> int:
        return len(self.rows)

    def batches(self, size: int) -> Iterator[Tensor]:
        """One pass over the images, in their order, as floats in [0, 1]."""
        for rows in self.rows.split(size):
            yield self.images.floats(rows)


@dataclass(frozen=True)
class Taught:
    """Images without labels, and what somebody thinks of each instead."""

    images: Unlabelled
    thoughts: Tensor  # one row per image

    def __len__(self) -> int:
        return len(self.images)

    def batches(self, size: int, rng: torch.Generator | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """One pass, always in order."""
        yield from zip(self.images.batches(size), self.thoughts.split(size), strict=True)
