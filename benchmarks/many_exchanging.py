"""Two thousand clients that exchange in every slot: what the store and the memory of the process grow with.

FedAvg has one mixture for all, and nothing may grow faster than the clients. FedAMP has a weight for every pair, N²
of them in a slot, some copies of which it needs while it mixes; the store keeps some rows, of some exchanges
(`engine/exchange.py`). The model is tiny: only the bookkeeping counts. Each size runs in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate import params
from acclimate.adapters.bn_adapt import BNAdapt
from acclimate.aggregators.fedamp import FedAMP
from acclimate.aggregators.fedavg import FedAvg
from acclimate.contracts import AdapterRecipe
from acclimate.engine.evaluate import Test, evaluate
from acclimate.engine.executor import Serial
from acclimate.engine.roster import roster
from acclimate.examples import Images
from acclimate.models.build import Build
from acclimate.scenarios.population import Held, Population, Stream
from acclimate.store.database import Store, Unit
from benchmarks.exchange import told
from benchmarks.measure import GROWTH, MB, Grown, Line, peak_memory

AGGREGATORS = {"FedAvg": FedAvg(), "FedAMP": FedAMP()}
GROWING, SLOTS, LONG = (500, 1000, 2000), 5, 100  # clients; slots
SIDE = 4  # pixels
KINDS = ("store", "memory")


class Tiny(nn.Module):
    """One convolution with a batch norm."""

    def __init__(self, classes: int, shape: tuple[int, int, int], normalise: nn.Module) -> None:
        super().__init__()
        self.normalise = normalise
        self.conv, self.norm = nn.Conv2d(shape[0], 4, 3), nn.BatchNorm2d(4)
        self.head = nn.Linear(4, classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(F.relu(self.norm(self.conv(self.normalise(x)))).mean((2, 3)))
        return logits


def run() -> list[Line]:
    lines, found = [], {}
    for name, clients, slots in (
        *(("FedAvg", n, SLOTS) for n in GROWING),
        ("FedAvg", 2000, LONG),
        ("FedAMP", 2000, SLOTS),
    ):
        command = [sys.executable, "-m", "benchmarks.many_exchanging", name, str(clients), str(slots)]
        of: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        what = f"{name}, {clients:,} exchanging clients x {slots} slots"
        lines.append(_figure(f"{what}: MB of the store", of["store"] / MB))
        lines.append(_figure(f"{what}: MB of memory while it runs", of["memory"] / MB))
        lines.append(_figure(f"{what}: ms a client and slot", 1000 * of["seconds"] / clients / slots))
        if (name, slots) == ("FedAvg", SLOTS):
            found[clients] = of
            GROWTH.extend(Grown(f"FedAvg, {SLOTS} slots with exchanges: MB", k, clients, of[k] / MB) for k in KINDS)
    times = GROWING[-1] / GROWING[0]
    for kind in KINDS:
        grown = found[GROWING[-1]][kind] / found[GROWING[0]][kind]
        what = f"FedAvg, {times:.0f} times the clients: times the {kind}"
        lines.append(Line(what, grown, grown, grown, f"<= {1.1 * times:.1f}", grown <= 1.1 * times))
    return lines


def _figure(what: str, value: float) -> Line:
    return Line(what, value, value, value, "-")


def one(aggregator: str, clients: int, slots: int, folder: Path) -> dict[str, float]:
    """Test, and save as a run does; bytes of the store, and the most memory above what importing took."""
    torch.set_num_threads(1)
    people = population(clients, slots)
    build = Build(Tiny, people.classes, people.shape, people.mean, people.std)
    torch.manual_seed(0)
    known, store = told(params.of(build())), Store(folder / "store.sqlite")
    unit = Unit(store.run("many", {}, {}), aggregator, 0, "test")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, start, executor = peak_memory(os.getpid()), time.perf_counter(), Serial()
    executor.meet(people)
    for commit in evaluate(
        AdapterRecipe(BNAdapt),
        roster(people, 1),
        build,
        known,
        aggregator=AGGREGATORS[aggregator],
        test=Test(batch_size=1),
        executor=executor,
        commit_seconds=1.0,  # so that also short tests save where everybody stands
    ):
        store.commit(unit, commit)
    store.close()
    size = sum(file.stat().st_size for file in folder.iterdir())
    return {"store": size, "memory": peak_memory(os.getpid()) - before, "seconds": time.perf_counter() - start}


def population(clients: int, slots: int) -> Population:
    """Random images, one for each client and slot."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (clients * slots, SIDE, SIDE, 1), dtype=np.uint8)
    rows = np.arange(len(images)).reshape(clients, slots)
    streams: Sequence[Stream] = [Stream(client, "test", (("none", Held(0, of)),)) for client, of in enumerate(rows)]
    pools = ((Images(images), rng.integers(0, 10, len(images))),)
    return Population(10, (0.5,), (0.25,), pools, streams=list(streams))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        print(json.dumps(one(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(made))))
