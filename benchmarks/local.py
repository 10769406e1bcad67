"""Rounds of FedAvg beside a bare loop that ends in the same weights, and two workers beside two processes alone.

The linear model has FLUTE's settings for MNIST (1,000 clients, 10 a round, batches of 10, rate 0.03), where a step is a
fifth of a millisecond; then the MLP and the small CNN. The bare loop keeps all images in memory as floats, has one
model, saves nothing and checks nothing. Processor time of this process: what others do on the machine does not count.
Freed memory stays with the process, on both sides, as it does in every run.

Two independent processes have half of the clients and half of the cohort each, and never wait for each other: what two
workers of one run could reach at best. That is time on the clock, with both cores.
"""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.engine.executor import Executor, Processes, Serial
from acclimate.engine.memory import keep_freed_memory
from acclimate.engine.roster import roster
from acclimate.engine.seeds import generator, seed_call
from acclimate.engine.train import sample, train
from acclimate.examples import Images
from acclimate.models.build import Build
from acclimate.models.mlp import MLP
from acclimate.models.shallow_cnn import ShallowCNN
from acclimate.scenarios.population import Held, Population
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import FedAvg
from benchmarks.measure import Line, interleave, ratio

SEED = 0


@dataclass(frozen=True)
class Setting:
    """A federated problem of random images."""

    name: str
    model: type[nn.Module]
    shape: tuple[int, int, int]
    clients: int
    each: int
    cohort: int
    batch: int
    lr: float
    rounds: int
    most: float  # of the bare loop's time
    longer: int = 1  # rounds, where two processes are measured
    options: dict[str, Any] = field(default_factory=dict)

    def build(self) -> Build:
        return Build(self.model, 10, self.shape, (0.5,) * self.shape[0], (0.25,) * self.shape[0], self.options)

    def population(self) -> Population:
        """Noisy images of ten random patterns."""
        rng = np.random.default_rng(SEED)
        size = (*self.shape[1:], self.shape[0])
        labels = rng.integers(0, 10, self.clients * self.each)
        pixels = rng.integers(64, 192, (10, *size))[labels] + rng.normal(0, 32, (len(labels), *size))
        images = Images(pixels.clip(0, 255).astype(np.uint8))
        rows = np.arange(len(labels)).reshape(self.clients, self.each)
        source = {id: (Held(0, rows[id]), Held(0, rows[id][:0])) for id in range(self.clients)}
        build = self.build()
        return Population(10, build.mean, build.std, ((images, labels),), source)


LINEAR = Setting("LR-MNIST", MLP, (1, 28, 28), 1000, 60, 10, 10, 0.03, 40, 1.08, 160, {"hidden": ()})
SETTINGS = (
    LINEAR,
    Setting("MLP", MLP, (1, 28, 28), 100, 120, 10, 20, 0.03, 10, 1.01, 40),
    Setting("ShallowCNN", ShallowCNN, (3, 32, 32), 20, 160, 10, 20, 0.005, 1, 1.01, 3),
)


def run(repeats: int = 9) -> list[Line]:
    torch.set_num_threads(1)
    keep_freed_memory()
    lines = []
    for setting in SETTINGS:
        people, executor = setting.population(), Serial()
        data = floats(people)
        sides = {
            "bare": lambda setting=setting, data=data: bare(setting, data),
            "engine": lambda setting=setting, people=people, executor=executor: engine(setting, people, executor),
        }
        drift = same(sides["bare"](), sides["engine"]())
        seconds = interleave(sides, repeats, clock=time.process_time)
        ms = {name: 1000 * statistics.median(times) / setting.rounds for name, times in seconds.items()}
        told = ", ".join(f"{name} {value:.1f} ms a round" for name, value in ms.items())
        print(f"{setting.name}, {setting.cohort} of {setting.clients} clients: {told}; weights differ by {drift:.0e}")
        ratios = [a / b for a, b in zip(seconds["engine"], seconds["bare"], strict=True)]
        what, median = f"{setting.name}: one process, in the time of a bare loop", statistics.median(ratios)
        required = f"<= {setting.most}"
        lines.append(Line(what, median, min(ratios), max(ratios), required, median <= setting.most))
    return [*lines, *_two(repeats)]


def _two(repeats: int) -> list[Line]:
    """Two workers beside two processes that know nothing of each other."""
    lines = []
    spawn = get_context("spawn")
    with Processes(2) as workers, ProcessPoolExecutor(2, mp_context=spawn) as apart:
        for setting in (replace(one, rounds=one.longer) for one in SETTINGS):
            people = setting.population()
            half = replace(setting, clients=setting.clients // 2, cohort=setting.cohort // 2)

            def independent(half: Setting = half) -> None:
                for done in [apart.submit(_alone, half) for _ in range(2)]:
                    done.result()

            def together(setting: Setting = setting, people: Population = people) -> None:
                engine(setting, people, workers)

            sides = {"apart": independent, "together": together}
            for side in sides.values():
                side()
            taken = interleave(sides, repeats)
            what = f"{setting.name}: two workers, in the speed of two independent processes"
            lines.append(ratio(what, taken["apart"], taken["together"], 0.95))
    return lines


def _alone(setting: Setting) -> None:
    torch.set_num_threads(1)
    keep_freed_memory()
    engine(setting, _held(setting.name), Serial())


@cache
def _held(name: str) -> Population:
    """Half of the clients of a setting, made once in each process."""
    (setting,) = (one for one in SETTINGS if one.name == name)
    return replace(setting, clients=setting.clients // 2).population()


def floats(people: Population) -> list[tuple[Tensor, Tensor]]:
    """Everybody's images and labels, in the layout in which the engine trains."""
    held = (people.examples(part) for part, _ in people.source.values())
    return [(one.x, one.y) for one in held]


def bare(setting: Setting, data: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """FedAvg as one would write it by hand."""
    seed_call(SEED, 0, 0, "init")  # the engine's initial weights
    net = setting.build()()
    server = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    for round in range(1, setting.rounds + 1):
        cohort = sample(SEED, 0, round, range(setting.clients), setting.cohort)
        mean = {name: torch.zeros_like(tensor, dtype=torch.float32) for name, tensor in server.items()}
        for id in cohort:
            images, labels = data[id]
            net.load_state_dict(server)
            net.train()
            optimizer = torch.optim.SGD(net.parameters(), lr=setting.lr)
            order = torch.randperm(len(labels), generator=generator(SEED, 0, round, id, "batches"))
            for part in order.split(setting.batch):
                optimizer.zero_grad()
                F.cross_entropy(net(images[part]), labels[part]).backward()
                optimizer.step()
            for name, tensor in net.state_dict().items():
                mean[name] += tensor * (1 / len(cohort))
        server = {name: tensor.to(server[name].dtype) for name, tensor in mean.items()}
    return server


def engine(setting: Setting, people: Population, executor: Executor) -> dict[str, Tensor]:
    """The same by the engine."""
    executor.meet(people)
    outcome = train(
        FedAvg(LocalSGD(lr=setting.lr, batch_size=setting.batch)),
        roster(people),
        setting.build(),
        rounds=setting.rounds,
        cohort=setting.cohort,
        seed=SEED,
        executor=executor,
    )
    found: dict[str, Tensor] = outcome.server.w
    return found


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """The largest difference between two models, which must be float noise."""
    worst = max(float((a[name] - b[name]).abs().max()) for name in a if a[name].is_floating_point())
    assert a.keys() == b.keys() and worst < 1e-3, f"the two sides trained different models: {worst}"
    return worst


if __name__ == "__main__":
    for line in run():
        print(line)
