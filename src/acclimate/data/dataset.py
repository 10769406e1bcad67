"""A data set in memory-mapped form: images, labels, and what a model must know of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from acclimate.errors import MissingData, nearest
from acclimate.examples import Images


@dataclass(frozen=True)
class Dataset:
    """All images of a data set with their labels; `digest` identifies the content.

    `columns` says more of each image: "split" (0 train, 1 test), "domain", "writer", ..., whatever the data set
    knows. `names` says what the numbers of a column mean; those of the labels are under "label".
    """

    name: str
    images: Images
    labels: NDArray[np.int64]  # -1: unlabelled (a user's own data only)
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    digest: str
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def column(self, name: str) -> NDArray[Any]:
        """One entry per image; "label" is a column too."""
        if name == "label":
            return self.labels
        if name not in self.columns:
            raise MissingData(
                f"data set '{self.name}' has no column '{name}'; {nearest(name, ['label', *self.columns])}"
            )
        return self.columns[name]

    def where(self, column: str, value: int | str) -> NDArray[np.int64]:
        """The rows whose entry is `value`: a number, or its name.

        >>> images = Images(np.zeros((3, 1, 1, 1), dtype=np.uint8))
        >>> toy = Dataset("toy", images, np.array([0, 1, 1]), 2, (0.5,), (0.5,), "", names={"label": ("cat", "dog")})
        >>> toy.where("label", "dog")
        array([1, 2])
        """
        found = self.column(column)
        if isinstance(value, str) and column in self.names:
            names = self.names[column]
            if value not in names:
                raise MissingData(f"column '{column}' of '{self.name}' has no '{value}'; {nearest(value, names)}")
            value = names.index(value)
        return np.flatnonzero(found == value)
