"""All clients of one seed: a plan (who holds which rows under which shift), and the plan made real.

Shifted images are computed once, in batches, into one array in the cache folder named by its content; a client
is a list of rows of that array or of the clean one.
"""

from __future__ import annotations

import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from acclimate.data import image_shifts
from acclimate.data.dataset import Dataset
from acclimate.data.folders import cache_folder
from acclimate.data.image_shifts import Clean, Shift
from acclimate.data.sealed import is_sound, write_sealed
from acclimate.examples import Examples, Images, Unlabelled
from acclimate.options import Seed
from acclimate.scenarios.availability import ALWAYS, Availability
from acclimate.scenarios.hostile import NOBODY, Hostile

Augment = Callable[[Tensor], Tensor]  # what source clients train on instead of a batch of their images
CLEAN = Clean()
VALIDATION = "validation"  # the stream of source clients' validation parts


class Holding(NamedTuple):
    """Rows of the data set, seen through a shift."""

    rows: NDArray[np.int64]
    shift: Shift = CLEAN


class Blend(NamedTuple):
    """Several holdings shuffled into one segment, so that a batch has images of all."""

    parts: Sequence[Holding]
    order: NDArray[np.int64]  # a permutation of all their rows
    name: str


class StreamPlan(NamedTuple):
    """One client's test stream: its segments in time order."""

    client: int
    name: str
    segments: Sequence[Holding | Blend]


@dataclass(frozen=True)
class Plan:
    """What a scenario decides for one seed."""

    dataset: Dataset
    source: Mapping[int, tuple[Holding, Holding]]  # client → training part, validation part
    streams: Sequence[StreamPlan]
    public: Holding | None = None  # unlabelled images that everybody has
    remarks: Sequence[str] = ()  # what a reader of results must know of how it came out
    groups: Mapping[int, str] = field(default_factory=dict)  # client → its domain, angle, ...: for reports only
    augment: Augment | None = None


class Held(NamedTuple):
    """Rows of the clean array (pool 0) or of the shifted one (pool 1)."""

    pool: int
    rows: NDArray[np.int64]


class Slot(NamedTuple):
    """One batch of a stream."""

    shift: str
    parts: tuple[Held, ...]


class Stream(NamedTuple):
    """One client's test images in time order: segments of constant shift."""

    client: int
    name: str
    segments: tuple[tuple[str, Held], ...]

    def slots(self, batch_size: int | str) -> list[Slot]:
        """The stream cut into batches of one shift each; 'all' makes one batch of everything."""
        if batch_size == "all":
            names = dict.fromkeys(shift for shift, _ in self.segments)
            return [Slot(" then ".join(names), tuple(held for _, held in self.segments))]
        size = int(batch_size)
        return [
            Slot(shift, (Held(held.pool, held.rows[start : start + size]),))
            for shift, held in self.segments
            for start in range(0, len(held.rows), size)
        ]

    def length(self, batch_size: int | str) -> int:
        """How many batches that makes."""
        if batch_size == "all":
            return 1
        return sum(-(-len(held.rows) // int(batch_size)) for _, held in self.segments)


@dataclass(frozen=True)
class Population:
    """All clients of one seed, ready to use; small to send to another process."""

    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    pools: tuple[tuple[Images, NDArray[np.int64]], ...]  # images and labels: clean, shifted
    source: Mapping[int, tuple[Held, Held]] = field(default_factory=dict)
    streams: Sequence[Stream] = ()
    public: Held | None = None
    digest: str = ""  # of all that phases can see: what was trained on equal digests can be shared
    availability: Availability = ALWAYS  # of test clients; nothing is trained differently for it
    remarks: Sequence[str] = ()
    groups: Mapping[int, str] = field(default_factory=dict)  # of the plan; no part of the digest
    hostile: Hostile = NOBODY
    liars: frozenset[int] = frozenset()  # the clients that are
    augment: Augment | None = None

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        return self.pools[0][0].shape

    def examples(self, held: Held) -> Examples:
        """Rows as labelled images."""
        images, labels = self.pools[held.pool]
        return Examples(images, torch.from_numpy(labels[held.rows]), torch.from_numpy(held.rows))

    def unlabelled(self) -> Unlabelled | None:
        """The images that everybody has."""
        if self.public is None:
            return None
        return Unlabelled(self.pools[self.public.pool][0], torch.from_numpy(self.public.rows))

    def validation_streams(self) -> list[Stream]:
        """The source clients' validation parts as streams: what choices may be made on."""
        return [
            Stream(client, VALIDATION, (("source", held),))
            for client, (_, held) in self.source.items()
            if len(held.rows)
        ]


@dataclass(frozen=True)
class Scenario(ABC):
    """A table of who holds and meets what, made from a seed, ignorant of methods. Subclasses are frozen dataclasses.

    `partition_seed` holds the population fixed while the experiment's seeds vary everything else. `availability` says
    when test clients exchange, for systems with an aggregator, and `hostile` lets some of all clients lie.
    """

    partition_seed: Seed | None = None
    availability: Availability = ALWAYS
    hostile: Hostile = NOBODY

    @abstractmethod
    def plan(self, seed: int) -> Plan:
        """Decide everything for one seed."""

    def seed_of(self, seed: int) -> int:
        """The seed that decides the population in an experiment's seed."""
        return seed if self.partition_seed is None else self.partition_seed

    def build(self, seed: int) -> Population:
        """The population of one seed."""
        chosen = self.seed_of(seed)
        people = replace(realise(self.plan(chosen), chosen), availability=self.availability)
        if self.hostile.share == 0:
            return people
        new = {stream.client for stream in people.streams} - set(people.source)
        liars = self.hostile.among(people.source, chosen) | self.hostile.among(new, chosen)
        return replace(people, hostile=self.hostile, liars=liars, digest=f"{people.digest} {self.hostile} {chosen}")


def realise(plan: Plan, seed: int) -> Population:
    """Compute the shifted images of a plan (or find them in the cache) and point everybody at their rows."""
    wanted: dict[Shift, set[int]] = {}
    for holding, copied in _holdings(plan):
        if copied or not isinstance(holding.shift, Clean):
            wanted.setdefault(holding.shift, set()).update(holding.rows.tolist())
    order = [(shift, np.array(sorted(rows), dtype=np.int64)) for shift, rows in wanted.items()]
    pools = [(plan.dataset.images, plan.dataset.labels)]
    place: dict[Shift, tuple[int, NDArray[np.int64]]] = {}
    if order:
        start = 0
        for shift, rows in order:
            place[shift], start = (start, rows), start + len(rows)
        labels = np.concatenate([plan.dataset.labels[rows] for _, rows in order])
        pools.append((Images(_shifted(plan.dataset, order, seed)), labels))

    def copy(holding: Holding) -> NDArray[np.int64]:
        first, rows = place[holding.shift]
        positions: NDArray[np.int64] = first + np.searchsorted(rows, holding.rows)
        return positions

    def held(holding: Holding | Blend) -> Held:
        if isinstance(holding, Blend):
            return Held(1, np.concatenate([copy(part) for part in holding.parts])[holding.order])
        return Held(0, holding.rows) if isinstance(holding.shift, Clean) else Held(1, copy(holding))

    return Population(
        classes=plan.dataset.classes,
        mean=plan.dataset.mean,
        std=plan.dataset.std,
        pools=tuple(pools),
        source={client: (held(train), held(check)) for client, (train, check) in plan.source.items()},
        streams=[
            Stream(client, name, tuple((_name(segment), held(segment)) for segment in segments))
            for client, name, segments in plan.streams
        ],
        public=None if plan.public is None else held(plan.public),
        digest=_digest(plan, seed),
        remarks=plan.remarks,
        groups=plan.groups,
        augment=plan.augment,
    )


def _name(segment: Holding | Blend) -> str:
    return segment.name if isinstance(segment, Blend) else segment.shift.name


def _holdings(plan: Plan) -> list[tuple[Holding, bool]]:
    """Everything anybody holds, and whether it must be in the array of shifted images even if it is clean."""
    found = [(holding, False) for pair in plan.source.values() for holding in pair]
    found += [] if plan.public is None else [(plan.public, False)]
    for stream in plan.streams:
        for segment in stream.segments:
            parts = segment.parts if isinstance(segment, Blend) else [segment]
            found += [(part, isinstance(segment, Blend)) for part in parts]
    return found


def _digest(plan: Plan, seed: int) -> str:
    """Of what phases can see: source clients and public images. Tests may differ and still share a trained model."""
    held = [holding for pair in plan.source.values() for holding in pair]
    held += [] if plan.public is None else [plan.public]
    drawn = any(not isinstance(holding.shift, Clean) for holding in held)  # a clean image is the same for all seeds
    people = [(f"{list(plan.source)} {plan.public is None}", np.zeros(0, np.int64))]
    if plan.augment is not None:
        code = Path(inspect.getfile(type(plan.augment))).read_text(encoding="utf-8")  # other code, other pixels
        people.append((f"{plan.augment} {code}", np.zeros(0, np.int64)))
    return _hash(plan.dataset, seed if drawn else 0, [*people, *((repr(h.shift), h.rows) for h in held)])


def _hash(dataset: Dataset, seed: int, parts: Sequence[tuple[str, NDArray[np.int64]]]) -> str:
    digest = hashlib.sha256(f"{dataset.digest} {seed} ".encode())
    data = Path(image_shifts.__file__).parent
    for path in (data / "image_shifts.py", *sorted(data.glob("corruptions/*.py"))):
        if path.name != "sheet.py":  # draws pictures of them, changes none
            digest.update(path.read_bytes())  # other code, other pixels
    for label, rows in parts:
        digest.update(f"{label} {len(rows)} ".encode() + rows.tobytes())
    return digest.hexdigest()[:16]


def _shifted(dataset: Dataset, order: Sequence[tuple[Shift, NDArray[np.int64]]], seed: int) -> Path:
    """The file with the images of `order`, computed if it is not there."""
    digest = _hash(dataset, seed, [(repr(shift), rows) for shift, rows in order])
    path = cache_folder() / "images" / f"{dataset.name}-shifted-{digest}.npy"
    if not is_sound(path):
        total = sum(len(rows) for _, rows in order)
        pixels = np.empty((total, *dataset.images.pixels.shape[1:]), dtype=np.uint8)
        start = 0
        for shift, rows in order:
            for part in np.array_split(rows, max(1, len(rows) // 1000)):
                images = dataset.images.bytes(torch.from_numpy(part))
                changed = shift(images, part.tolist(), seed).permute(0, 2, 3, 1)
                pixels[start : start + len(part)] = changed.numpy()
                start += len(part)
        write_sealed(path, lambda file: np.save(file, pixels))
    return path
