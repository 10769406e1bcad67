"""States as they are kept: a blob and the sum of it and of its place, so that damage is noticed when it is read.

Where a table has a column for sums they stand there; elsewhere the sum stands behind the blob.
"""

from __future__ import annotations

import hashlib

from acclimate.errors import DamagedFile

_MARK, _LENGTH = b"\0blake2b", 16


def sealed(blob: bytes, place: str) -> bytes:
    """A blob with its sum behind it.

    >>> unsealed(sealed(b"state", "round 1"), "round 1", "the state")
    b'state'
    """
    return blob + _MARK + _digest(blob, place)


def unsealed(kept: bytes, place: str, what: str) -> bytes:
    """The blob again. One without a sum is damaged: to believe it would make the sum itself the place to damage."""
    blob, mark, digest = kept[: -len(_MARK) - _LENGTH], kept[-len(_MARK) - _LENGTH : -_LENGTH], kept[-_LENGTH:]
    if mark != _MARK or digest != _digest(blob, place):
        raise DamagedFile(f"{what} was damaged")
    return blob


def content_sum(blob: bytes) -> bytes:
    """The sum of a blob alone: two with the same are the same."""
    return hashlib.sha256(blob).digest()


def place_sum(content: bytes, place: str) -> bytes:
    """The sum of a blob in its place."""
    return hashlib.sha256(content + place.encode()).digest()[:_LENGTH]


def _digest(blob: bytes, place: str) -> bytes:
    return hashlib.blake2b(blob, digest_size=_LENGTH, key=place.encode()[:64]).digest()
