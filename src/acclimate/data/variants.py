"""The same images at another size, in grey or in colour; computed once into the cache folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from acclimate.data.dataset import Dataset
from acclimate.data.folders import cache_folder
from acclimate.data.sealed import is_sound, write_images
from acclimate.errors import ConfigError
from acclimate.examples import Images

CHUNK = 1000
LUMA = (0.299, 0.587, 0.114)  # ITU-R 601, as Pillow's convert("L")


def variant(dataset: Dataset, size: int | None = None, channels: int | None = None) -> Dataset:
    """The data set at `size` x `size` pixels and with 1 or 3 channels; itself if it is so already.

    Resizing is bilinear, with antialiasing on the way down. Grey becomes colour by repetition, colour becomes
    grey by the ITU-R 601 weights. Mean and standard deviation follow: exactly for grey to colour; for colour to
    grey the deviation is the channels' weighted average, an upper bound.
    """
    before = dataset.images.shape
    channels = channels or before[0]
    height, width = (size, size) if size else before[1:]
    if (channels, height, width) == before:
        return dataset
    if {channels, before[0]} - {1, 3}:
        raise ConfigError(
            [f"1 or 3 channels are possible; found {before[0]}, asked for {channels}"], f"data '{dataset.name}'"
        )
    digest = f"{dataset.digest}-{height}x{width}x{channels}"
    path = cache_folder() / "images" / f"{digest}.npy"
    if not is_sound(path):
        parts = _changed(dataset.images, channels, (height, width))
        write_images(path, (len(dataset.images), height, width, channels), parts)
    mean, std = (_channels(values, channels) for values in (dataset.mean, dataset.std))
    return replace(dataset, images=Images(path), mean=mean, std=std, digest=digest)


def _changed(images: Images, channels: int, size: tuple[int, int]) -> Iterator[NDArray[np.uint8]]:
    for rows in torch.arange(len(images)).split(CHUNK):
        x = images.bytes(rows)
        if x.shape[1] > channels:
            x = _bytes((x * torch.tensor(LUMA).view(1, 3, 1, 1)).sum(1, keepdim=True))
        if x.shape[2:] != size:
            x = _bytes(F.interpolate(x.float(), size, mode="bilinear", align_corners=False, antialias=True))
        yield x.expand(-1, channels, -1, -1).permute(0, 2, 3, 1).contiguous().numpy()


def _bytes(x: Tensor) -> Tensor:
    return x.round().clamp(0, 255).to(torch.uint8)


def _channels(values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    if len(values) == channels:
        return values
    if channels == 3:
        return values * 3
    return (round(sum(v * w for v, w in zip(values, LUMA, strict=True)), 4),)
