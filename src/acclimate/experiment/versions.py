"""What numbers depend on besides the experiment."""

from __future__ import annotations

import platform
import subprocess
from functools import cache
from pathlib import Path

from acclimate.version import __version__


@cache
def versions() -> dict[str, str]:
    """Of this package and of what it stands on; git is asked once per process."""
    import numpy
    import torch

    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return {
        "acclimate": __version__,
        "commit": commit.stdout.strip() or "unknown",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "machine": platform.machine(),
    }
