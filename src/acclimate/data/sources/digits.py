"""scikit-learn's handwritten digits: 1,797 real 8x8 images that need no download, upscaled."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
import torch
import torch.nn.functional as F

from acclimate.data.dataset import Dataset
from acclimate.data.folders import cache_folder
from acclimate.data.sealed import is_sound, write_sealed
from acclimate.examples import Images
from acclimate.options import Count

SIZE = 32
MEAN, STD = (0.3052,), (0.3236,)  # of the 1,797 images at 32 pixels a side


def load(size: Count = SIZE) -> Dataset:
    """The digits at `size` x `size` pixels, one channel, decoded once into the cache folder."""
    name = f"digits-{size}-sklearn-{version('scikit-learn')}"
    folder = cache_folder() / "images"
    pixels, labels = folder / f"{name}.npy", folder / f"{name}-labels.npy"
    if not (is_sound(pixels) and is_sound(labels)):
        from sklearn.datasets import load_digits  # a second to import

        found = load_digits()
        small = torch.from_numpy(found.images.astype(np.float32)).unsqueeze(1) / 16
        large = F.interpolate(small, (size, size), mode="bilinear", align_corners=False)
        upscaled = (large * 255).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
        write_sealed(labels, lambda file: np.save(file, found.target.astype(np.int64)))
        write_sealed(pixels, lambda file: np.save(file, upscaled))
    return Dataset(
        name="digits",
        images=Images(pixels),
        labels=np.load(labels),
        classes=10,
        mean=MEAN,
        std=STD,
        digest=name,
        names={"label": tuple("0123456789")},
    )
