"""A data set in memory-mapped form: images, labels, and what a model must know of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from acclimate.examples import Images


@dataclass(frozen=True)
class Dataset:
    """All images of a data set with their labels; `digest` identifies the content."""

    name: str
    images: Images
    labels: NDArray[np.int64]
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    digest: str
