"""Small answers that depend on our code and on the question alone, kept in the cache folder.

So that a description is shown, or a finished run found again, without loading a method and torch with it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from acclimate.data.folders import cache_folder, write_whole

Answer = TypeVar("Answer")


def remembered(question: Any, answer: Callable[[], Answer]) -> Answer:
    """The answer, which is plain data: from an earlier time if our code is still the same, else worked out now.

    None is not kept: it depends on something else.
    """
    folder = cache_folder() / "answers" / _digest(_files())
    path = folder / f"{_digest(question)}.json"
    with contextlib.suppress(OSError, ValueError):  # not there, or not readable
        kept: Answer = json.loads(path.read_bytes())
        return kept
    found = answer()
    if found is None:
        return found
    with contextlib.suppress(OSError):  # a cache that cannot be written to only costs time
        write_whole(path, lambda file: file.write(json.dumps(found).encode()))
        for other in folder.parent.iterdir():  # of other code
            if other != folder:
                shutil.rmtree(other, ignore_errors=True)
    return found


def _files() -> list[tuple[str, int, int]]:
    """Every file of this package, with its time and size; installing or editing changes them."""
    root = Path(__file__).parents[1]
    stats = {path: path.stat() for path in sorted(root.rglob("*")) if path.suffix in (".py", ".yaml")}
    return [(str(path), stat.st_mtime_ns, stat.st_size) for path, stat in stats.items()]


def _digest(plain: Any) -> str:
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:16]
