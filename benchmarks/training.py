"""Federated training of a small CNN: the engine against a plain PyTorch loop that ends in the same weights."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.engine.executor import Executor, Processes, Serial
from acclimate.engine.known import Known
from acclimate.engine.roster import roster
from acclimate.engine.seeds import generator, seed_call
from acclimate.engine.train import train
from acclimate.examples import Images
from acclimate.models.build import Build
from acclimate.models.normalise import Normalise
from acclimate.models.shallow_cnn import ShallowCNN
from acclimate.scenarios.population import Held, Population
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import FedAvg
from benchmarks.measure import Line, interleave, ratio

# A small step and one round: float noise flips a max-pool or a ReLU now and then, and larger steps make it grow.
CLIENTS, EACH, BATCH, LR, ROUNDS, SEED = 60, 160, 20, 0.005, 1, 0
CLASSES, SHAPE, MEAN, STD = 10, (3, 32, 32), (0.5,) * 3, (0.25,) * 3
Data = list[tuple[Tensor, Tensor]]  # of each client, images and labels


def population(folder: Path) -> Population:
    """Noisy images of ten random patterns, in a file that workers map."""
    rng = np.random.default_rng(SEED)
    labels = rng.integers(0, CLASSES, CLIENTS * EACH)
    patterns = rng.integers(64, 192, (CLASSES, 32, 32, 3))
    pixels = patterns[labels] + rng.normal(0, 32, (len(labels), 32, 32, 3))
    np.save(folder / "images.npy", pixels.clip(0, 255).astype(np.uint8))
    rows = np.arange(CLIENTS * EACH).reshape(CLIENTS, EACH)
    source = {id: (Held(0, rows[id]), Held(0, rows[id][:0])) for id in range(CLIENTS)}
    return Population(CLASSES, MEAN, STD, ((Images(folder / "images.npy"), labels),), source)


# --- the plain loop: one model, one process, all images in memory as floats ---


def plain(clients: Data, layout: torch.memory_format) -> dict[str, Tensor]:
    """FedAvg as one would write it by hand."""
    seed_call(SEED, 0, 0, "init")  # the engine's initial weights
    net = ShallowCNN(CLASSES, SHAPE, Normalise(MEAN, STD)).to(memory_format=layout)
    server = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    total = sum(len(y) for _, y in clients)
    for round in range(1, ROUNDS + 1):
        mean = {name: torch.zeros_like(tensor, dtype=torch.float32) for name, tensor in server.items()}
        for id, (images, labels) in enumerate(clients):
            net.load_state_dict(server)
            net.train()
            optimizer = torch.optim.SGD(net.parameters(), lr=LR)
            order = torch.randperm(len(labels), generator=generator(SEED, 0, round, id, "batches"))
            for part in order.split(BATCH):
                optimizer.zero_grad()
                F.cross_entropy(net(images[part]), labels[part]).backward()
                optimizer.step()
            for name, tensor in net.state_dict().items():
                mean[name] += tensor * (len(labels) / total)
        server = {name: tensor.to(server[name].dtype) for name, tensor in mean.items()}
    return server


# --- the engine, and the arithmetic alone ---


def engine(clients: Population, executor: Executor) -> dict[str, Tensor]:
    build = Build(ShallowCNN, CLASSES, SHAPE, MEAN, STD)
    algorithm = FedAvg(LocalSGD(lr=LR, batch_size=BATCH))
    executor.meet(clients)
    outcome = train(algorithm, roster(clients), build, rounds=ROUNDS, seed=SEED, executor=executor)
    found: dict[str, Tensor] = Known([outcome]).of(None)["model"]
    return found


def arithmetic(batches: Data, net: nn.Module) -> None:
    """Forward, backward and SGD step on ready batches: nothing of federated learning."""
    optimizer = torch.optim.SGD(net.parameters(), lr=LR)
    for _ in range(ROUNDS):
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()


def threads(count: int, side: Callable[[], object]) -> Callable[[], object]:
    def run() -> object:
        torch.set_num_threads(count)
        return side()

    return run


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """The largest difference between two models, which must be float noise."""
    worst = max(float((a[name] - b[name]).abs().max()) for name in a if a[name].is_floating_point())
    assert a.keys() == b.keys() and worst < 1e-4, f"the two sides trained different models: {worst}"
    return worst


def run(repeats: int = 5) -> list[Line]:
    last = torch.channels_last
    with tempfile.TemporaryDirectory() as folder, Processes(2) as workers:
        clients = population(Path(folder))
        held = [clients.examples(part) for part, _ in clients.source.values()]
        rows: Data = [(one.x.contiguous(), one.y) for one in held]
        columns: Data = [(one.x.contiguous(memory_format=last), one.y) for one in held]
        ready = [(x.contiguous(memory_format=last), y) for one in held for x, y in one.batches(BATCH)]
        net = ShallowCNN(CLASSES, SHAPE, Normalise(MEAN, STD)).to(memory_format=last)

        two = threads(2, lambda: plain(rows, torch.contiguous_format))
        one = threads(1, lambda: plain(columns, last))
        ours, serial = lambda: engine(clients, workers), threads(1, lambda: engine(clients, Serial()))
        drift = max(same(two(), ours()), same(one(), serial()))  # also the warm-up: workers are running now
        # Two threads sometimes share one core for a while: time enough for all turns, and the median.
        pair = interleave({"plain": two, "engine": ours}, repeats, budget=150.0)
        limit = threads(1, lambda: arithmetic(ready, net))
        alone = interleave({"plain": one, "engine": serial, "limit": limit}, repeats, budget=150.0)

    images = CLIENTS * EACH * ROUNDS
    speed = {name: images / statistics.median(s) for name, s in (alone | {"two": pair["engine"]}).items()}
    print(f"ShallowCNN, {CLIENTS} clients x {EACH} images: largest difference of weights {drift:.1e}")
    print(f"  arithmetic alone, 1 thread {speed['limit']:>7,.0f} images/s")
    print(f"  plain loop, 1 thread       {speed['plain']:>7,.0f} images/s")
    print(f"  engine, 1 process          {speed['engine']:>7,.0f} images/s")
    print(f"  engine, 2 workers          {speed['two']:>7,.0f} images/s")
    return [
        ratio("2 workers, against a plain loop with 2 threads (NCHW)", pair["plain"], pair["engine"], 1.5),
        ratio("1 process, against a plain loop with 1 thread (channels last)", alone["plain"], alone["engine"], 0.95),
        ratio("1 process, against the arithmetic alone", alone["limit"], alone["engine"], None),
    ]
