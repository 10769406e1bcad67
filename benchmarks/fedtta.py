"""FedTTA's meta-iteration beside a plain SGD step and beside `higher`, and a round beside a loop written with it.

`higher` 0.2.1 is wanted for the comparison only: `pip install --no-deps higher==0.2.1` (the extra `bench`). Without it
the lines that need it are left out.
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate import params
from acclimate.engine.executor import Executor, Processes
from acclimate.engine.known import Known
from acclimate.engine.live import Extending
from acclimate.engine.roster import roster
from acclimate.engine.seeds import generator, seed_call
from acclimate.engine.train import train
from acclimate.examples import Images
from acclimate.models.build import Build
from acclimate.models.extended import Extended
from acclimate.models.mlp import MLP
from acclimate.params import Params
from acclimate.scenarios.population import Held, Population
from acclimate.training.fedtta import AS_RELEASED, NAME, FedTTA
from benchmarks.measure import Line, interleave, ratio

CLIENTS, EACH, STEPS, BATCH, SEED = 50, 595, 20, 64, 0
BUILD = Build(MLP, 10, (1, 28, 28), (0.13,), (0.31,))
# Small steps: float noise flips a ReLU now and then, and larger ones make it grow.
ALGORITHM = FedTTA(replace(AS_RELEASED, lr=0.01), inner_lr=0.05, adapt_lr=0.001)


class Ready:
    """One batch, as often as wanted."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.y)

    def batches(self, size: int, rng: torch.Generator | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        yield self.x, self.y


def ours(net: nn.Module, w: Params, batches: Any, rng: torch.Generator | None = None) -> Params:
    """A client's work, as `FedTTA` does it."""
    params.load(net, w)
    loss = ALGORITHM.meta_loss(net, w, ALGORITHM.inner(0))
    ALGORITHM.loop().fit(ALGORITHM.groups(net, loss), batches, rng)
    return params.of(net)


def by_higher(higher: Any, net: Extended, w: Params, batches: Iterator[tuple[Tensor, Tensor]]) -> Params:
    """The same as one would write it with `higher`."""
    params.load(net, w)
    base, g, loop = vars(net)["plain"], net.extra[NAME], ALGORITHM.local
    decay = loop.weight_decay
    inner = torch.optim.SGD(base.parameters(), lr=ALGORITHM.inner_lr, weight_decay=decay)
    outer = torch.optim.SGD(base.parameters(), lr=loop.lr, weight_decay=decay)
    adapt = torch.optim.SGD(g.parameters(), lr=ALGORITHM.adapt_lr, momentum=0.9, weight_decay=decay)
    for x, y in batches:
        outer.zero_grad()
        adapt.zero_grad()
        with higher.innerloop_ctx(base, inner, copy_initial_weights=False) as (stepped, optimizer):
            optimizer.step(g(stepped(x)))
            F.cross_entropy(stepped(x), y).backward()
        nn.utils.clip_grad_norm_(base.parameters(), 10.0)
        nn.utils.clip_grad_norm_(g.parameters(), 10.0)
        outer.step()
        adapt.step()
    return params.of(net)


def plain_steps(net: nn.Module, x: Tensor, y: Tensor) -> None:
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()


def same(a: Params, b: Params) -> float:
    """The largest difference between two results, which must be float noise."""
    worst = max(float((a[name] - b[name]).abs().max()) for name in a)
    assert a.keys() == b.keys() and worst < 1e-3, f"the two sides computed different things: {worst}"
    return worst


def population(folder: Path) -> Population:
    rng = np.random.default_rng(SEED)
    labels = rng.integers(0, 10, CLIENTS * EACH)
    pixels = rng.integers(64, 192, (10, 28, 28, 1))[labels] + rng.normal(0, 32, (len(labels), 28, 28, 1))
    np.save(folder / "images.npy", pixels.clip(0, 255).astype(np.uint8))
    rows = np.arange(CLIENTS * EACH).reshape(CLIENTS, EACH)
    source = {id: (Held(0, rows[id]), Held(0, rows[id][:0])) for id in range(CLIENTS)}
    return Population(10, (0.13,), (0.31,), ((Images(folder / "images.npy"), labels),), source)


def engine(people: Population, executor: Executor) -> Params:
    """One round with all clients."""
    executor.meet(people)
    outcome = train(ALGORITHM, roster(people), BUILD, rounds=1, seed=SEED, executor=executor)
    w: Params = Known([outcome]).outcomes[0].server.w
    return w


def loop_with_higher(higher: Any, people: Population, data: list[tuple[Tensor, Tensor]]) -> Params:
    """One round in one process, all images in memory as floats."""
    seed_call(SEED, 0, 0, "init")
    net = ALGORITHM.extend(BUILD())
    assert isinstance(net, Extended)
    w, mean = params.of(net), params.zeros_like(params.of(net))
    for id, (x, y) in enumerate(data):
        rng = generator(SEED, 0, 1, id, "batches")

        def batches(x: Tensor = x, y: Tensor = y, rng: torch.Generator = rng) -> Iterator[tuple[Tensor, Tensor]]:
            done = 0
            while True:
                for part in torch.randperm(len(y), generator=rng).split(BATCH):
                    if done == STEPS:
                        return
                    yield x[part], y[part]
                    done += 1

        mean = params.add(mean, by_higher(higher, net, w, batches()), 1 / CLIENTS)
    return mean


def run(repeats: int = 9) -> list[Line]:
    torch.set_num_threads(1)
    torch.manual_seed(SEED)
    net, bare = Extending(BUILD, (ALGORITHM,))(), BUILD()
    assert isinstance(net, Extended)
    w, x, y = params.of(net), torch.rand(BATCH, 1, 28, 28), torch.randint(0, 10, (BATCH,))
    try:
        higher = importlib.import_module("higher")
    except ImportError:
        higher = None
        print("FedTTA beside `higher` was left out: pip install --no-deps higher==0.2.1")
    sides = {"ours": lambda: ours(net, w, Ready(x, y)), "plain": lambda: plain_steps(bare, x, y)}
    if higher:
        sides["higher"] = lambda: by_higher(higher, net, w, iter([(x, y)] * STEPS))
        print(f"FedTTA, {STEPS} meta-iterations: difference to higher {same(sides['ours'](), sides['higher']()):.1e}")
    for side in sides.values():
        side()
    seconds = interleave(sides, repeats)
    step = sorted(seconds["plain"])[len(seconds["plain"]) // 2] / STEPS
    print(f"MLP 784-200-200-10, batch {BATCH}, one thread: a plain SGD step takes {1000 * step:.2f} ms")
    lines = [_cost("a meta-iteration of FedTTA, in plain SGD steps", seconds["ours"], seconds["plain"], 4.8)]
    if higher:
        lines.append(_cost("a meta-iteration of FedTTA, in those with higher", seconds["ours"], seconds["higher"], 0.8))
        lines.append(_rounds(higher, min(repeats, 5)))
    return lines


def _rounds(higher: Any, repeats: int) -> Line:
    with tempfile.TemporaryDirectory() as folder, Processes(2) as workers:
        people = population(Path(folder))
        data = [(one.x.contiguous(), one.y) for one in (people.examples(part) for part, _ in people.source.values())]
        sides = {"higher": lambda: loop_with_higher(higher, people, data), "engine": lambda: engine(people, workers)}
        drift = same(sides["higher"](), sides["engine"]())
        print(f"FedTTA, {CLIENTS} clients x {STEPS} meta-iterations: largest difference of weights {drift:.1e}")
        seconds = interleave(sides, repeats, budget=150.0)
    return ratio(f"{CLIENTS} clients, 2 workers, against a loop with higher", seconds["higher"], seconds["engine"], 2.2)


def _cost(what: str, ours: list[float], other: list[float], most: float) -> Line:
    ratios = sorted(a / b for a, b in zip(ours, other, strict=True))
    median = ratios[len(ratios) // 2]
    return Line(what, median, ratios[0], ratios[-1], f"<= {most}", median <= most)


if __name__ == "__main__":
    for line in run():
        print(line)
