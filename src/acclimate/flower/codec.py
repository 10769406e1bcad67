"""What passes between server and nodes: letters of text and blobs, and how tasks and results become blobs.

Nothing is pickled. A record of the engine (`Part`, `Stretch`, ...) is a nest but for its parcels and bytes, so these
are marked and the whole is one safetensors blob (`acclimate.trees`). What many tasks share is a blob of its own, named
by its digest, and is not sent again to a node that has it. One blob instead of one array per tensor: Flower fetches
every array by a request of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from acclimate import trees
from acclimate.trees import Nest, Parcel, Shared

RECORDS = "records"  # the name of the blob with tasks or results


class Letter(NamedTuple):
    """A message, or the answer to one."""

    text: str  # JSON
    blobs: Mapping[str, bytes]

    @property
    def size(self) -> int:
        """Bytes that travel."""
        return len(self.text.encode()) + sum(len(blob) for blob in self.blobs.values())


class Within(NamedTuple):
    """A parcel, opened: its nest is part of the record."""

    nest: Nest


class Named(NamedTuple):
    """A shared parcel: its blob travels beside the record, or is there already."""

    digest: str
    lasting: bool


class Raw(NamedTuple):
    """Bytes, which no nest holds."""

    values: Tensor


class Missing(ValueError):
    """A blob that is not here."""


def digest_of(blob: bytes) -> str:
    """The name of a blob: two with the same name are the same."""
    return hashlib.blake2b(blob, digest_size=16).hexdigest()


def pack(records: Any, shared: dict[str, Shared]) -> bytes:
    """Records as a blob; parcels that many share are put into `shared`, by name."""

    def mark(one: Any) -> Any:
        if isinstance(one, Shared):
            name = digest_of(one.blob)
            shared[name] = one
            return Named(name, one.lasting)
        if isinstance(one, Parcel):
            return Within(one.open())
        return Raw(torch.from_numpy(np.frombuffer(one, np.uint8).copy()))

    return trees.dump(_walk(records, Parcel | bytes, mark))


def unpack(blob: bytes, blob_of: Callable[[str], bytes]) -> Any:
    """The records of a blob; `blob_of` has what they share. ValueError: it is none of ours, or what it needs is not."""
    opened: dict[str, Shared] = {}

    def unmark(one: Within | Named | Raw) -> Any:
        if isinstance(one, Within):
            return Parcel(one.nest)
        if isinstance(one, Raw):
            return one.values.numpy().tobytes()
        if one.digest not in opened:  # one object for all who read it, so that it is opened once
            opened[one.digest] = Shared(blob_of(one.digest), one.lasting)
        return opened[one.digest]

    return _walk(trees.load(blob), Within | Named | Raw, unmark)


def written(content: Mapping[str, Any]) -> str:
    """The text of a letter."""
    return json.dumps(content, sort_keys=True)


def read(letter: Letter) -> dict[str, Any]:
    """What the text of a letter says; ValueError: it is none of ours."""
    found = json.loads(letter.text)
    if not isinstance(found, dict):
        raise ValueError(f"expected a mapping, found {type(found).__name__}")
    return found


def _walk(one: Any, kinds: Any, change: Callable[[Any], Any]) -> Any:
    """The same with everything of some kinds changed, at any depth; what is changed is not looked into."""
    if isinstance(one, kinds):
        return change(one)
    if isinstance(one, Mapping):
        return {key: _walk(value, kinds, change) for key, value in one.items()}
    if isinstance(one, tuple | list):
        items = [_walk(value, kinds, change) for value in one]
        return type(one)._make(items) if hasattr(one, "_make") else type(one)(items)
    return one
