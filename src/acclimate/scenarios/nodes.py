"""Images that are on the nodes themselves: every node is a client, and the server knows how many images each has."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from acclimate.data import own, partition
from acclimate.data.dataset import Dataset
from acclimate.errors import ConfigError, MissingData
from acclimate.examples import Images
from acclimate.options import Count, Positive, Share
from acclimate.scenarios.population import Holding, Plan, Scenario, StreamPlan

TRAIN, TEST = "train", "test"  # folders of a node, with a folder per class or, for the test, images as they are
LONGEST_NAME, MOST_IMAGES = 100, 1_000_000  # of a node: the server makes room for what a node says it has


class Holder(NamedTuple):
    """What a server may know of a node's data."""

    name: str
    train: int  # images with labels
    test: int

    @staticmethod
    def of(said: Any) -> Holder:
        """What a node says of itself; ValueError: it cannot be."""
        name, *counts = said
        if not isinstance(name, str) or not name.isprintable() or not 0 < len(name) <= LONGEST_NAME:
            raise ValueError(f"expected a name of 1 to {LONGEST_NAME} letters, found {name!r}; give the node another")
        if len(counts) != 2 or not all(type(count) is int and 0 <= count <= MOST_IMAGES for count in counts):
            raise ValueError(
                f"expected 0 to {MOST_IMAGES:,} images to train on and as many to meet, found {counts}; "
                "give the node's folder fewer"
            )
        return Holder(name, *counts)


@dataclass(frozen=True)
class Nodes(Scenario):
    """A node serves `train/<class>/*.png` and `test/*.png` (or, to be scored, `test/<class>/*.png`) of its folder.

    The classes (`labels`) and the size are the same everywhere; which image is of which class stays on the nodes.
    """

    labels: tuple[str, ...] = ()  # in the order of the model's outputs
    size: Count = 32
    channels: Literal[1, 3] = 3
    mean: float = 0.5  # of pixels, for the model's first layer: no node is asked for its own
    std: Positive = 0.25
    validation: Share = 0.2

    def plan(self, seed: int) -> Plan:
        raise ConfigError(["its images are on Flower's nodes; run it there (docs/flower.md)"], "scenario 'nodes'")

    def on_server(self, holders: Sequence[Holder]) -> Scenario:
        """As the server sees it: who has how many images, and nothing of them."""
        most = max((max(one.train, one.test) for one in holders), default=0)
        # One number for all pixels, which are never looked at.
        blank = as_strided(np.zeros(1, np.uint8), (most, self.size, self.size, self.channels), (0, 0, 0, 0))
        rows = np.arange(most)
        digest = hashlib.sha256(repr((self, list(holders))).encode()).hexdigest()[:16]
        dataset = self._dataset(Images(blank), np.full(most, own.UNLABELLED), digest)
        held = {id: (rows[: one.train], rows[: one.test]) for id, one in enumerate(holders)}
        return self._bound(dataset, held)

    def on_node(self, folder: Path, id: int = 0) -> Bound:
        """As the node sees it that is client `id`."""
        if len(self.labels) < 2:
            raise ConfigError(["labels: expected the names of at least two"], "scenario 'nodes'")
        found = own.folder_per_client(folder, self.size, self.labels)
        if found.images.shape[0] != self.channels:
            raise MissingData(
                f"{folder}: expected images of {self.channels} channel(s), found {found.images.shape[0]}; "
                "convert them, or set channels in the scenario"
            )
        parts = {
            name: np.flatnonzero(found.columns["client"] == k) for k, name in enumerate(found.names["client"])
        }  # fmt: skip
        train, test = (parts.get(name, np.arange(0)) for name in (TRAIN, TEST))
        if (found.labels[train] < 0).any():
            raise MissingData(f"{folder / TRAIN}: expected a folder per class, found images without one")
        dataset = self._dataset(found.images, found.labels, found.digest, {"path": found.columns["path"]})
        return self._bound(dataset, {id: (train, test)})

    def _dataset(
        self,
        images: Images,
        labels: NDArray[np.int64],
        digest: str,
        columns: Mapping[str, NDArray[np.str_]] | None = None,
    ) -> Dataset:
        mean, std = (self.mean,) * self.channels, (self.std,) * self.channels
        names = {"label": self.labels}
        return Dataset("nodes", images, labels, len(self.labels), mean, std, digest, columns or {}, names)

    def _bound(self, dataset: Dataset, held: Mapping[int, tuple[NDArray[np.int64], NDArray[np.int64]]]) -> Bound:
        return Bound(**vars(self), dataset=dataset, held=held)


@dataclass(frozen=True)
class Bound(Nodes):
    """The scenario with data: those of one node, or what the server knows of all."""

    dataset: Dataset = field(kw_only=True)
    held: Mapping[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = field(kw_only=True)  # to train on, to meet

    def holder(self, name: str) -> Holder:
        """What a node says of itself."""
        ((train, test),) = self.held.values()
        return Holder(name, len(train), len(test))

    def plan(self, seed: int) -> Plan:
        source, streams = {}, []
        for id, (train, test) in self.held.items():
            if len(train) >= 2:
                kept, check = partition.cut(np.random.default_rng([seed, 12]).permutation(train), self.validation)
                source[id] = (Holding(kept), Holding(check))
            if len(test):
                streams.append(StreamPlan(id, TEST, [Holding(test)]))
        return Plan(self.dataset, source, streams)
