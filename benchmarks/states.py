"""Phases whose clients keep states, beside FedAvg: 100 of 10,000 clients a round, everything saved to a file.

In the first rounds clients take part for the first time, and FedPer draws a model for each; later they have a state
that is read, and written if it changed. Processor time of this process.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from acclimate import trees
from acclimate.engine.checkpoint import Checkpoint
from acclimate.engine.executor import Serial
from acclimate.engine.roster import roster
from acclimate.engine.train import train
from acclimate.engine.trainee import Training
from acclimate.models.build import Build
from acclimate.models.fedtta_cnn import FedTTACNN
from acclimate.models.mlp import MLP
from acclimate.scenarios.population import Population
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import FedAvg
from acclimate.training.fedper import FedPer
from acclimate.training.scaffold import Scaffold
from benchmarks.local import Setting
from benchmarks.many_clients import population, write
from benchmarks.measure import MB, Line

ROUNDS, LOCAL = 4, LocalSGD(lr=0.01)
PHASES: dict[str, Any] = {"FedAvg": FedAvg(LOCAL), "FedPer": FedPer(LOCAL), "SCAFFOLD": Scaffold(LOCAL)}
MOST = {"FedPer": 1.2, "SCAFFOLD": 2.0}


def run() -> list[Line]:
    torch.set_num_threads(1)
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "images.npy")
        people = population(Path(folder) / "images.npy", 10_000)
        for model, options in (("LR", {"hidden": ()}), ("MLP", {})):
            build = Build(MLP, 10, people.shape, people.mean, people.std, options)
            first, later = _phases(people, build, Path(folder) / model)
            for name, most in MOST.items():
                for when, times in (("first time", first), ("later", later)):
                    ratios = [a / b for a, b in zip(times[name], times["FedAvg"], strict=True)]
                    median, low, high = statistics.median(ratios), min(ratios), max(ratios)
                    what = f"{model}, 100 of 10,000 clients: {name} / FedAvg, {when}"
                    goal = ("-", None) if when == "first time" else (f"<= {most}", median <= most)
                    lines.append(Line(what, median, low, high, *goal))
        lines.append(_saving(Path(folder) / "large.sqlite"))
    return lines


def _phases(people: Population, build: Build, path: Path) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of rounds by phase, of clients without and with a state."""
    first, later = {}, {}
    for name, algorithm in PHASES.items():
        with_states = Checkpoint(path.with_suffix(f".{name}"))
        first[name] = _rounds(algorithm, people, build, with_states)
        states = {id: state for id in people.source if (state := with_states.client(id)) is not None}
        again = Checkpoint(path.with_suffix(f".{name}.again"))
        again.commit(0, trees.dump(algorithm.init(_task(algorithm, people, build))), states)
        with_states.close()
        later[name] = _rounds(algorithm, people, build, again)
        size = sum(file.stat().st_size for file in path.parent.glob(f"{path.name}.{name}.again*"))
        print(f"  {path.name}, {name}: {size / MB:.0f} MB of {len(states)} states after {ROUNDS} rounds")
        again.close()
    return first, later


def _task(algorithm: Any, people: Population, build: Build) -> Any:
    return Training(algorithm, build, 0, 0, tuple(people.source)).task(people.classes, people.shape)


def _rounds(algorithm: Any, people: Population, build: Build, saved: Checkpoint) -> list[float]:
    times = [time.process_time()]
    train(
        algorithm,
        roster(people),
        build,
        rounds=ROUNDS,
        cohort=100,
        executor=Serial(people),
        checkpoint=saved,
        progress=lambda *_: times.append(time.process_time()),
    )
    return [b - a for a, b in pairwise(times)]


def _saving(path: Path) -> Line:
    """SCAFFOLD on FedTTA's ConvNet, states of 8.6 MB: what part of a round goes into saving and reading them."""
    setting = Setting("ConvNet", FedTTACNN, (3, 32, 32), 10, 200, 5, 20, 0.01, 3, 0.0)
    spent, timing, saved = [0.0], {}, Checkpoint(path)
    for owner, name in ((saved, "commit"), (saved, "client"), (trees, "dump"), (trees, "load")):
        timing[owner, name] = getattr(owner, name)
        setattr(owner, name, _timed(timing[owner, name], spent))
    try:
        people = setting.population()
        start = time.process_time()
        train(
            Scaffold(LocalSGD(lr=0.01)), roster(people), setting.build(), rounds=3, cohort=5,
            executor=Serial(people), checkpoint=saved,
        )  # fmt: skip
        share = spent[0] / (time.process_time() - start)
    finally:
        for (owner, name), before in timing.items():
            setattr(owner, name, before)
        saved.close()
    what = "SCAFFOLD on a ConvNet, states of 8.6 MB: share of a round spent saving"
    return Line(what, share, share, share, "<= 0.25", share <= 0.25)


def _timed(call: Any, spent: list[float]) -> Any:
    def timed(*args: Any, **named: Any) -> Any:
        begin = time.process_time()
        try:
            return call(*args, **named)
        finally:
            spent[0] += time.process_time() - begin

    return timed


if __name__ == "__main__":
    for line in run():
        print(line)
