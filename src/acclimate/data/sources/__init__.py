"""The data sets: one table row each."""

from __future__ import annotations

from dataclasses import dataclass

from acclimate.data.dataset import Dataset
from acclimate.data.sources import digits
from acclimate.errors import MissingData, nearest


@dataclass(frozen=True)
class Source:
    """A data set, where it comes from, and whether it is here."""

    title: str
    images: int
    shape: str
    origin: str
    state: str  # "here": usable now


SOURCES = {
    "digits": Source(
        title="scikit-learn's handwritten digits",
        images=1797,
        shape="1x8x8, upscaled",
        origin="embedded in scikit-learn (UCI ML hand-written digits, CC BY 4.0); no download",
        state="here",
    ),
}


def load(name: str, size: int) -> Dataset:
    """A data set by name."""
    if name not in SOURCES:
        raise MissingData(f"unknown data set '{name}'; {nearest(name, SOURCES)}")
    return digits.load(size)
