"""The same federated training by pfl 0.6, by Flower 1.41 and by us, each in processes of its own.

`make bench-peers` makes an environment for the others (.venv-peers). pfl is given our cohorts and our orders of
batches, and must end in our weights; Flower draws its own, so only its time and memory are compared.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from acclimate.engine.seeds import generator, seed_call
from acclimate.engine.train import sample
from acclimate.models.build import Build
from benchmarks.measure import MB, Line
from benchmarks.peers.problem import MODELS, Problem, write

PYTHON = Path(".venv-peers/bin/python")


class Taken(NamedTuple):
    """What a side took."""

    round: float  # median seconds of a round
    total: float  # seconds from the start of the process to its end
    memory: float  # most bytes of all its processes together, shared pages counted once


def made(model: str, clients: int, each: int, cohort: int, rounds: int, batch: int, lr: float) -> Problem:
    """Random images of ten patterns; cohorts, orders and weights are those that the engine draws with seed 0."""
    shape = (1, 28, 28) if model == "linear" else (3, 32, 32)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 10, (clients, each))
    noisy = rng.integers(64, 192, (10, *shape))[y] + rng.normal(0, 32, (clients, each, *shape))
    x = torch.from_numpy(noisy.clip(0, 255).astype(np.uint8)).float().div_(255)
    cohorts = torch.tensor([list(sample(0, 0, r, range(clients), cohort)) for r in range(1, rounds + 1)])
    orders = [
        [torch.randperm(each, generator=generator(0, 0, r + 1, int(id), "batches")) for id in ids]
        for r, ids in enumerate(cohorts)
    ]
    seed_call(0, 0, 0, "init")
    make, options = MODELS[model]
    net = Build(make, 10, shape, (0.5,) * shape[0], (0.25,) * shape[0], options)()
    weights = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    return Problem(
        model, x, torch.from_numpy(y), cohorts, torch.stack([torch.stack(o) for o in orders]), weights, lr, batch
    )


def run(repeats: int = 3) -> list[Line]:
    if not PYTHON.exists():
        print("pfl and Flower are left out: `make bench-peers` makes an environment for them")
        return []
    linear = made("linear", 1000, 60, 10, 40, 10, 0.03)
    cnn = made("cnn", 240, 40, 240, 2, 20, 0.005)
    return [
        *_compare("LR-MNIST, 10 of 1,000 clients", linear, ("ours 1", "pfl 1", "ours 2", "pfl 2", "flower 2"), repeats),
        *_compare("ShallowCNN, 240 clients", cnn, ("ours 2", "pfl 2", "flower 2"), 1),
    ]


def _compare(what: str, problem: Problem, sides: tuple[str, ...], repeats: int) -> list[Line]:
    taken: dict[str, list[Taken]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as folder:
        path, weights = Path(folder) / "problem.npz", {}
        write(path, problem)
        for turn in range(repeats):
            for side in sides:
                if turn and side.startswith("flower"):  # minutes, and nowhere near
                    continue
                out = Path(folder) / f"{side.replace(' ', '-')}.npz"
                found = _measured(side, path, out)
                if found is None:
                    continue
                taken[side].append(found)
                weights[side] = dict(np.load(out))
    lines = [line for side, many in taken.items() if many for line in _lines(what, side, many)]
    for side, found in weights.items():
        if not side.startswith("flower"):
            ours = weights[next(iter(weights))]
            worst = max(float(np.abs(found[n] - ours[n]).max()) for n in ours if ours[n].dtype == np.float32)
            lines.append(Line(f"{what}: weights of {side} beside ours, largest difference", worst, worst, worst, "-"))
    for number in ("1", "2"):
        ours, theirs = taken.get(f"ours {number}"), taken.get(f"pfl {number}")
        if ours and theirs:
            ratios = [b.round / a.round for a, b in zip(ours, theirs, strict=False)]
            median = statistics.median(ratios)
            name = f"{what}, {number} process{'es' * (number > '1')}: pfl / ours, a round"
            goal = (">= 1.0", median >= 1.0) if number == "2" else ("-", None)
            lines.append(Line(name, median, min(ratios), max(ratios), *goal))
    return lines


def _lines(what: str, side: str, many: list[Taken]) -> Iterator[Line]:
    for name, values in (
        ("ms a round", [1000 * one.round for one in many]),
        ("s in all", [one.total for one in many]),
        ("MB", [one.memory / MB for one in many]),
    ):
        yield Line(f"{what}, {side}: {name}", statistics.median(values), min(values), max(values), "-")


def _measured(side: str, path: Path, out: Path) -> Taken | None:
    """One side in processes of its own; None, with a word, if it fails."""
    name, number = side.split()
    modules = {"ours": "by_us", "pfl": "by_pfl", "flower": "by_flower"}
    command = [sys.executable if name == "ours" else os.fspath(PYTHON.absolute())]
    if name == "pfl" and number != "1":
        command += ["-m", "torch.distributed.run", "--nproc-per-node", number]
    command += ["-m", f"benchmarks.peers.{modules[name]}", os.fspath(path), os.fspath(out)]
    command += [] if name == "pfl" else [number]
    root = Path(__file__).resolve().parents[2]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{root / 'src'}:{root}",
        "OMP_NUM_THREADS": "1",
        "RAY_DISABLE_IMPORT_WARNING": "1",
    }
    begin, peak = time.perf_counter(), [0.0]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    watch = threading.Thread(target=_watch, args=(process, peak), daemon=True)
    watch.start()
    told, errors = process.communicate()
    total = time.perf_counter() - begin
    answers = [line for line in told.splitlines() if line.startswith('{"times"')]
    if process.returncode or not answers:
        print(f"  {side} failed: {(errors.strip().splitlines() or ['no word'])[-1][:200]}")
        return None
    times = json.loads(answers[0])["times"]
    rounds = [b - a for a, b in pairwise(times)]
    return Taken(statistics.median(rounds[1:] or rounds), total, peak[0])


def _watch(process: subprocess.Popen[str], peak: list[float]) -> None:
    """The most memory of a process and all its descendants at a time."""
    while process.poll() is None:
        peak[0] = max(peak[0], sum(map(_memory, _family(process.pid))))
        time.sleep(0.5)


def _family(pid: int) -> list[int]:
    found, parents = [pid], {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def _memory(pid: int) -> float:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    return next((1024.0 * int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0.0)


if __name__ == "__main__":
    for line in run():
        print(line)
