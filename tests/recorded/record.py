"""Write `measured.json`: what the recorded experiments give today, on this machine and these versions.

Run it only when bits are meant to change: `python tests/recorded/record.py`.
"""

from __future__ import annotations

import hashlib
import json
import platform
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import numpy
import torch

from acclimate.engine.executor import Executor
from acclimate.experiment.reader import read
from acclimate.experiment.run import STORE, run
from acclimate.store.records import SELECTED, TEST

HERE = Path(__file__).parent
FILE = HERE / "measured.json"
NAMES = sorted(path.stem for path in HERE.glob("*.yaml"))


def machine() -> dict[str, str]:
    """What bits may depend on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    capability = torch.backends.cpu.get_cpu_capability()
    versions = {"torch": torch.__version__, "numpy": numpy.__version__}
    return {"cpu": f"{cpu}, {capability}", "system": platform.system(), **versions}


def measured(name: str, executor: Executor | None = None) -> dict[str, Any]:
    """Accuracies of a recorded experiment, and digests of all that they and the training losses are made of."""
    with tempfile.TemporaryDirectory() as folder:
        run(read(HERE / f"{name}.yaml"), Path(folder), executor=executor)
        db = sqlite3.connect(Path(folder) / STORE)
        try:
            return {
                "accuracy": _accuracies(db),
                "slots": _digest(
                    db, "metric IN ('correct', 'count', 'left_out', 'missed') AND slot >= -1 AND system != ''"
                ),
                "losses": _digest(db, "metric = 'loss' AND phase NOT LIKE '%:atp#%'"),
            }
        finally:
            db.close()


def _accuracies(db: sqlite3.Connection) -> dict[str, float]:
    found = db.execute(
        "SELECT system, phase, stream, seed, sum(CASE metric WHEN 'correct' THEN value ELSE 0 END), "
        "sum(CASE metric WHEN 'count' THEN value ELSE 0 END) FROM row WHERE slot >= 0 AND system != '' "
        "GROUP BY system, phase, stream, seed ORDER BY 1, 2, 3, 4"
    )
    return {
        ", ".join((*_recorded(s, p), stream, f"seed {seed}")): correct / count
        for s, p, stream, seed, correct, count in found
    }


def _recorded(system: str, phase: str) -> tuple[str, str]:
    """As it was called when the record was made: a selected round was a system of its own."""
    return (f"{system} ({SELECTED})", TEST) if phase == SELECTED else (system, phase)


def _digest(db: sqlite3.Connection, where: str) -> str:
    """Of rows whatever their order; phases are labelled by position and name, without digests."""
    rows = db.execute(f"SELECT system, seed, phase, round, client, stream, slot, metric, value FROM row WHERE {where}")
    named = (((s, p), seed, rest) for system, seed, phase, *rest in rows for s, p in [_recorded(system, phase)])
    plain = sorted(repr((s, seed, p.partition("#")[0], *rest)) for (s, p), seed, rest in named)
    return hashlib.sha256("\n".join(plain).encode()).hexdigest()[:16]


if __name__ == "__main__":
    torch.set_num_threads(1)
    FILE.write_text(json.dumps({"machine": machine(), **{name: measured(name) for name in NAMES}}, indent=1) + "\n")
