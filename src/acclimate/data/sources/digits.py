"""scikit-learn's handwritten digits: 1,797 real 8x8 images that need no download, upscaled."""

from __future__ import annotations

import hashlib

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from acclimate.data.dataset import Dataset
from acclimate.data.folders import cache_folder, write_whole
from acclimate.examples import Images
from acclimate.options import Count

MEAN, STD = (0.3053,), (0.3470,)  # of the 1,797 images at 32 pixels a side, checked in a test


def load(size: Count = 32) -> Dataset:
    """The digits at `size` x `size` pixels, one channel, decoded once into the cache folder."""
    raw, labels = _raw()
    digest = hashlib.sha256(raw.tobytes() + f"bilinear {size}".encode()).hexdigest()[:16]
    path = cache_folder() / "images" / f"digits-{size}-{digest}.npy"
    if not path.exists():
        small = torch.from_numpy(raw).unsqueeze(1) / 16
        large = F.interpolate(small, (size, size), mode="bilinear", align_corners=False)
        pixels = (large * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
        write_whole(path, lambda file: np.save(file, pixels))
    return Dataset("digits", Images(path), labels, classes=10, mean=MEAN, std=STD, digest=digest)


def _raw() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    from sklearn.datasets import load_digits  # half a second to import

    found = load_digits()
    return found.images.astype(np.float32), found.target.astype(np.int64)
