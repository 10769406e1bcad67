"""Write `engine.json`: the engine's code as it is, and the revision that stands for it.

Run `python tests/recorded/engine.py` after an edit to the engine. Where the edit changes a bit of what is trained or
tested, raise `REVISION` in `src/acclimate/engine/revision.py` before, and everything is made again; with the same
revision this declares that it changes none, and what was made stays.
"""

from __future__ import annotations

import json
from pathlib import Path

from acclimate.engine.revision import REVISION
from acclimate.experiment.source import engine_digest

FILE = Path(__file__).with_name("engine.json")


def current() -> dict[str, int | str]:
    """The revision, and a digest of the code it stands for."""
    return {"revision": REVISION, "digest": engine_digest()}


if __name__ == "__main__":
    FILE.write_text(json.dumps(current()) + "\n", encoding="utf-8")
