"""States as they are kept: a blob and its sum, so that one that was damaged is noticed when it is read."""

from __future__ import annotations

import hashlib

from acclimate.errors import DamagedFile

_MARK, _LENGTH = b"\0blake2b", 16


def sealed(blob: bytes) -> bytes:
    """A blob with its sum behind it.

    >>> unsealed(sealed(b"state"), "it")
    b'state'
    """
    return blob + _MARK + _digest(blob)


def unsealed(kept: bytes, what: str) -> bytes:
    """The blob again; what was kept before there were sums is as it is."""
    blob, mark, digest = kept[: -len(_MARK) - _LENGTH], kept[-len(_MARK) - _LENGTH : -_LENGTH], kept[-_LENGTH:]
    if mark != _MARK:
        return kept
    if digest != _digest(blob):
        raise DamagedFile(f"{what} was damaged")
    return blob


def _digest(blob: bytes) -> bytes:
    return hashlib.blake2b(blob, digest_size=_LENGTH).digest()
