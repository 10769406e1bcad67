"""Which file is this? Its sha256, computed once and believed as long as path, size and time of change stay."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from acclimate.data.folders import cache_folder, write_whole


def sha256_of(path: Path) -> str:
    """The file's sha256: from the record if the file is unchanged since, else computed and recorded."""
    known = recorded(path)
    if known is not None:
        return known
    before = _stamp(path)
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if _stamp(path) == before:  # else it is being written: say what was read, record nothing
        note = json.dumps({**before, "sha256": digest}).encode()
        write_whole(_record(path), lambda file: file.write(note))
    return digest


def recorded(path: Path) -> str | None:
    """The sha256 if it was computed before and the file is unchanged since."""
    try:
        note = json.loads(_record(path).read_bytes())
        digest = note.pop("sha256")
    except (OSError, ValueError, KeyError, AttributeError):
        return None
    return str(digest) if note == _stamp(path) else None


def _stamp(path: Path) -> dict[str, object]:
    found = path.stat()
    return {"path": str(path.resolve()), "size": found.st_size, "mtime_ns": found.st_mtime_ns}


def _record(path: Path) -> Path:
    name = hashlib.blake2b(str(path.resolve()).encode(), digest_size=8).hexdigest()
    return cache_folder() / "packs" / f"{name}.json"
