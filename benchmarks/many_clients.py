"""Ten thousand small clients: neither memory nor the time of a round may grow with those who do not take part.

A client may cost its data (images on disk, mapped; its labels) and a place in the index of who holds what.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

from acclimate.engine.executor import Processes
from acclimate.engine.roster import roster
from acclimate.engine.train import train
from acclimate.examples import Images
from acclimate.models.build import Build
from acclimate.models.mlp import MLP
from acclimate.scenarios.population import Held, Population
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import FedAvg
from benchmarks.measure import MB, Line, mapped_memory, peak_memory

FEW, MANY, EACH, COHORT, WORKERS = 1_000, 10_000, 6, 100, 2
MODEL = 199_210 * 4 / MB  # one model, for comparison: what a copy per client would cost


def write(path: Path) -> None:
    np.save(path, np.random.default_rng(0).integers(0, 256, (MANY * EACH, 28, 28, 1), dtype=np.uint8))


def population(path: Path, clients: int) -> Population:
    rng = np.random.default_rng(1)
    rows = rng.permutation(clients * EACH).reshape(clients, EACH)
    source = {id: (Held(0, rows[id]), Held(0, rows[id][:0])) for id in range(clients)}
    return Population(10, (0.5,), (0.25,), ((Images(path), rng.integers(0, 10, MANY * EACH)),), source)


def rounds(clients: Population, executor: Processes, count: int) -> list[float]:
    """Seconds of the first round, which includes handing the clients to the workers, and of each later one."""
    times = [time.perf_counter()]
    executor.meet(clients)
    train(
        FedAvg(LocalSGD(lr=0.01)),
        roster(clients),
        Build(MLP, clients.classes, clients.shape, clients.mean, clients.std),
        rounds=count,
        cohort=COHORT,
        executor=executor,
        progress=lambda *_: times.append(time.perf_counter()),
    )
    return [after - before for before, after in pairwise(times)]


def memory(path: Path, clients: int) -> None:
    """In a process of its own: print its peak and its workers' peaks, without the pages of the images."""
    with Processes(WORKERS) as executor:
        rounds(population(path, clients), executor, 5)
        pids = [os.getpid(), *sorted(executor.worked)]
        print(json.dumps([peak_memory(pid) - mapped_memory(pid, path) for pid in pids]))


def measured(path: Path, clients: int) -> tuple[float, float]:
    """Peak bytes of a fresh parent and of the larger of its workers."""
    command = [sys.executable, "-m", "benchmarks.many_clients", os.fspath(path), str(clients)]
    parent, *workers = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return parent, max(workers)


def growth(what: str, few: list[float], many: list[float]) -> Line:
    """MB for each thousand clients more."""
    each = [(b - a) / MB / ((MANY - FEW) / 1000) for a, b in zip(few, many, strict=True)]
    median = statistics.median(each)
    return Line(what, median, min(each), max(each), "about 0")


def compare_memory(path: Path, repeats: int) -> list[Line]:
    pairs = [(measured(path, FEW), measured(path, MANY)) for _ in range(repeats)]
    parent, worker = ([(few[i], many[i]) for few, many in pairs] for i in (0, 1))
    for who, found in (("parent", parent), ("worker", worker)):
        few, many = (statistics.median(side) / MB for side in zip(*found, strict=True))
        print(f"  {who}'s peak without images: {few:.0f} MB with {FEW:,} clients, {many:.0f} MB with {MANY:,}")
    return [
        growth(f"MB for 1,000 clients more, {who} (a model each: {1000 * MODEL:.0f})", *zip(*found, strict=True))
        for who, found in (("parent", parent), ("worker", worker))
    ]


def compare_rounds(path: Path, repeats: int) -> Line:
    first: dict[int, list[float]] = {FEW: [], MANY: []}
    later: dict[int, list[float]] = {FEW: [], MANY: []}
    with Processes(WORKERS) as executor:
        populations = {count: population(path, count) for count in (FEW, MANY)}
        for clients in populations.values():
            rounds(clients, executor, 2)  # warm-up
        for _ in range(repeats):
            for count, clients in populations.items():
                once, *rest = rounds(clients, executor, 6)
                first[count].append(once)
                later[count] += rest
    for count in (FEW, MANY):
        usual, more = statistics.median(later[count]), statistics.median(first[count])
        print(f"  {count:>6,} clients: {1000 * usual:.0f} ms a round, {1000 * (more - usual):.0f} ms once to start")
    ratios = [many / few for few, many in zip(later[FEW], later[MANY], strict=True)]
    median = statistics.median(later[MANY]) / statistics.median(later[FEW])
    what = f"a round of {COHORT} of {MANY:,} clients, against one of {FEW:,}"
    return Line(what, median, min(ratios), max(ratios), "<= 1.1", median <= 1.1)


def run(repeats: int = 5) -> list[Line]:
    print(f"MLP, clients of {EACH} images, {COHORT} a round, {WORKERS} workers")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images.npy"
        write(path)
        return [compare_rounds(path, repeats), *compare_memory(path, 3)]


if __name__ == "__main__":
    memory(Path(sys.argv[1]), int(sys.argv[2]))
