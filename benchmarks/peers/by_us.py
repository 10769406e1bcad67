"""The problem solved by the engine: `python -m benchmarks.peers.by_us PROBLEM OUT WORKERS`."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np

from acclimate.engine.executor import Processes, Serial
from acclimate.engine.roster import roster
from acclimate.engine.train import train
from acclimate.examples import Images
from acclimate.models.build import Build
from acclimate.scenarios.population import Held, Population
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import FedAvg
from benchmarks.peers.problem import MODELS, read, tell


def main(path: str, out: str, workers: int) -> None:
    problem, times = read(path), [time.perf_counter()]
    clients, each, *shape = problem.x.shape
    pixels = (problem.x * 255).round().byte().permute(0, 1, 3, 4, 2).reshape(-1, *shape[1:], shape[0])
    rows = np.arange(clients * each).reshape(clients, each)
    source = {id: (Held(0, rows[id]), Held(0, rows[id][:0])) for id in range(clients)}
    np.save(f"{out}-images.npy", pixels.numpy())
    images = Images(Path(f"{out}-images.npy"))
    mean, std = (0.5,) * shape[0], (0.25,) * shape[0]
    people = Population(10, mean, std, ((images, problem.y.flatten().numpy()),), source)
    make, options = MODELS[problem.model]
    with Processes(workers) if workers > 1 else nullcontext(Serial()) as executor:
        executor.meet(people)
        outcome = train(
            FedAvg(LocalSGD(lr=problem.lr, batch_size=problem.batch)),
            roster(people),
            Build(make, 10, tuple(shape), mean, std, options),  # type: ignore[arg-type]
            rounds=len(problem.cohorts),
            cohort=problem.cohorts.shape[1],
            executor=executor,
            progress=lambda *_: times.append(time.perf_counter()),
        )
        tell(times, outcome.server.w, out)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
