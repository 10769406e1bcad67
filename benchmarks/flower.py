"""What a round and an exchange cost in this process, on Flower's simulation and on a deployment with two nodes.

`python -m benchmarks.flower` writes the table of docs/flower.md. It takes some minutes: a node of a deployment starts a
process for every message. `python -m benchmarks.flower plan` writes what the server's unit costs make for many devices.
"""

from __future__ import annotations

import csv
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch

from acclimate.experiment.reader import parse
from acclimate.experiment.run import run
from acclimate.flower.app import make_app
from acclimate.flower.executor import Exchange
from acclimate.flower.places import OnNodes
from acclimate.flower.server import EXCHANGES
from acclimate.flower.simulation import simulate
from benchmarks.measure import busy

ROOT = Path(__file__).resolve().parents[1]
BEGIN, END = "<!-- figures: python -m benchmarks.flower -->", "<!-- end of figures -->"
PLAN, END_PLAN = "<!-- figures: python -m benchmarks.flower plan -->", "<!-- end of the plan -->"
DEVICES, COHORT = 10_000, 200
SLOTS = 6
CLIENTS = 200  # of the server's unit costs
EXPERIMENT = {
    "name": "cost",
    "scenario": {
        "name": "twofold", "size": 18, "source_clients": 8, "per_source": 40, "test_clients": 8, "major": 8, "minor": 1,
        "new": False,
    },
    "model": "shallow-cnn",
    "phases": [{"name": "fedavg", "rounds": 3}],
    "systems": [
        {"name": "each", "adapter": "bn-adapt", "aggregator": "fedavg"},
        {"name": "third", "adapter": "bn-adapt", "aggregator": "fedavg", "test": {"sync_every": 3}},
    ],
    "test": {"batch_size": 4},
    "seeds": [0],
}  # fmt: skip


class Timed:
    """Seconds of each phase and test."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def begin(self, title: str, total: int) -> None:
        self._title, self._since = title.rpartition(": ")[2].removeprefix("testing "), time.perf_counter()

    def step(self, done: int, text: str) -> None: ...

    def end(self) -> None:
        self.seconds[self._title] = time.perf_counter() - self._since

    def say(self, text: str) -> None: ...


class Cost(NamedTuple):
    """Of one engine."""

    engine: str
    round: float  # seconds
    down: float  # bytes of a round, all nodes
    up: float
    each: float  # seconds of a test that exchanges in every slot
    third: float  # in every third
    messages: tuple[int, int]  # of these two tests


def here(folder: Path) -> Cost:
    timed = Timed()
    run(parse(EXPERIMENT), folder, listener=timed)
    seconds = timed.seconds
    return Cost("in this process", seconds["fedavg"] / 3, 0, 0, seconds["each"], seconds["third"], (0, 0))


def simulated(folder: Path) -> Cost:
    name = simulate(parse(EXPERIMENT), folder, nodes=2, listener=Timed())
    return cost("simulation, 2 nodes", folder / name)


def deployed(folder: Path) -> Cost:
    sys.path.insert(0, str(ROOT / "tests"))
    from system.deployment import Deployment

    experiment = parse(EXPERIMENT)
    make_app(folder / "app", experiment)
    with Deployment(folder / "deployment") as deployment:
        deployment.nodes(2)
        code, printed = deployment.run(folder / "app", timeout=3000)
        assert code == 0, printed
    return cost("deployment, 2 nodes, TLS", folder / "deployment" / "runs" / OnNodes.of(experiment).run_name)


def cost(engine: str, folder: Path) -> Cost:
    rows = [Exchange(k, int(n), int(d), int(u), float(s)) for k, n, d, u, s in lines(folder / EXCHANGES)]
    rounds, tests = ([row for row in rows if (row.kind == "train") == training] for training in (True, False))
    # A baseline without exchanges is one; then two streams, each with a message to begin and one for every exchange.
    # The test of every third slot is another one, with a baseline of its own.
    cut = 1 + 2 * (1 + SLOTS)
    each, third = tests[1:cut], tests[cut + 1 :]
    assert len(third) == 2 * (1 + SLOTS // 3)
    return Cost(
        engine,
        median(row.seconds for row in rounds),
        median(row.bytes_down for row in rounds[1:]),
        median(row.bytes_up for row in rounds),
        sum(row.seconds for row in each),
        sum(row.seconds for row in third),
        (sum(row.messages for row in each), sum(row.messages for row in third)),
    )


def lines(file: Path) -> Iterator[list[str]]:
    with file.open(newline="") as opened:
        yield from list(csv.reader(opened))[1:]


def server_costs(clients: int = CLIENTS) -> dict[str, float]:
    """Seconds and bytes of the server for one upload of BN statistics, by FedAvg, and for one reply of a phase."""
    from acclimate import trees
    from acclimate.aggregators.fedavg import FedAvg
    from acclimate.aggregators.tsa import TSA
    from acclimate.contracts import Replies, Reply, Upload
    from acclimate.models.normalise import Normalise
    from acclimate.models.resnet import resnet8

    net = resnet8(10, (3, 32, 32), Normalise((0.5,) * 3, (0.25,) * 3))
    model = {name: tensor.detach().clone() for name, tensor in net.state_dict().items()}
    shared = {name: tensor for name, tensor in model.items() if "running_" in name}
    uploads = [
        Upload(k, 0, {name: torch.rand_like(tensor) for name, tensor in shared.items()}, torch.rand(64), 20)
        for k in range(clients)
    ]
    found = {"shared bytes": float(trees.nbytes(shared)), "model bytes": float(trees.nbytes(model))}
    for name, aggregator in (("fedavg", FedAvg()), ("tsa", TSA())):
        state = aggregator.init([upload._replace(signature=None, weight=0) for upload in uploads])
        tries = []
        for _ in range(4):  # the first also warms up
            since = time.perf_counter()
            aggregator.mix(state, uploads, 0)
            tries.append(time.perf_counter() - since)
        found[f"{name} seconds"] = min(tries)
    blob, since = trees.dump(model), time.perf_counter()
    replies = Replies()
    for k in range(50):
        replies.add(k, Reply(trees.load(blob)))
    found["fold seconds"] = (time.perf_counter() - since) / 50
    return found


def table(costs: list[Cost], server: dict[str, float], others: float) -> str:
    rows = [
        f"| {one.engine} | {one.round:.1f} | {_bytes(one.down)} / {_bytes(one.up)} | {one.each:.1f} | {one.third:.1f} |"
        f" {one.messages[0] or '–'} / {one.messages[1] or '–'} |"
        for one in costs
    ]
    unit = (
        f"Unit costs of the server (ResNet-8, {CLIENTS} clients): mixing by FedAvg {server['fedavg seconds']:.3f} s, "
        f"by TSA {server['tsa seconds']:.3f} s; taking in one reply of a phase {1000 * server['fold seconds']:.2f} ms; "
        f"BN statistics {server['shared bytes']:,.0f} bytes, the model {server['model bytes']:,.0f} bytes."
    )
    return "\n".join(
        [
            f"{os.cpu_count()} cores, of which others kept {others:.1f} busy; digits, 8 clients, a shallow CNN.",
            "",
            "| engine | s per round | bytes down / up per round | s, exchange in each of 6 slots | s, in every third | "
            "messages |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            unit,
        ]
    )


def _bytes(number: float) -> str:
    return f"{number / 1000:,.0f} kB" if number else "–"


def plan() -> str:
    """What one exchange and one round of many devices, one client each, ask of the server."""
    half, whole = server_costs(CLIENTS // 2), server_costs()
    shared, model, fold = whole["shared bytes"], whole["model bytes"], whole["fold seconds"]
    power, mixing = {}, {}
    for name in ("fedavg", "tsa"):
        power[name] = max(1.0, math.log2(whole[f"{name} seconds"] / half[f"{name} seconds"]))
        mixing[name] = whole[f"{name} seconds"] * (DEVICES / CLIENTS) ** power[name]
    rows = [
        ("messages of an exchange", f"{DEVICES:,} down, {DEVICES:,} up"),
        ("bytes of an exchange, each way", f"{shared:,.0f} x {DEVICES:,} = {shared * DEVICES / 1e6:,.0f} MB"),
        ("the model, once", f"{model / 1e6:.2f} MB x {DEVICES:,} = {model * DEVICES / 1e9:,.1f} GB"),
        ("uploads in the server's memory", f"{shared * DEVICES / 1e6:,.0f} MB"),
        ("the K x K matrix of an aggregator (float64)", f"{DEVICES**2 * 8 / 1e6:,.0f} MB"),
        *(
            (
                f"mixing by {name}, which grows as K^{power[name]:.1f} or so",
                f"{mixing[name]:,.0f} s; {CLIENTS} devices: {whole[f'{name} seconds']:.2f} s",
            )
            for name in power
        ),
        (
            "replies of a round of all, held at worst",
            f"{model * DEVICES / 1e9:,.1f} GB, {fold * DEVICES:,.0f} s to fold",
        ),
        (f"replies of a cohort of {COHORT}", f"{model * COHORT / 1e9:,.2f} GB, {fold * COHORT:,.1f} s to fold"),
    ]
    grown = (
        f"ResNet-8 with BN statistics shared; unit costs measured with {CLIENTS // 2} and {CLIENTS} clients, in one "
        f"thread, while others kept {busy():.1f} cores busy."
    )
    return "\n".join(
        [grown, "", f"| {DEVICES:,} devices | from unit costs |", "|---|---|", *(f"| {a} | {b} |" for a, b in rows)]
    )


def write(begin: str, end: str, written: str) -> None:
    """Put figures between two marks of the page."""
    page = ROOT / "docs" / "flower.md"
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    print(written)
    page.write_text(f"{before}{begin}\n\n{written}\n\n{end}{rest.partition(end)[2]}", encoding="utf-8")


def main() -> None:
    torch.set_num_threads(1)
    if sys.argv[1:] == ["plan"]:
        write(PLAN, END_PLAN, plan())
        return
    others = busy()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ["ACCLIMATE_CACHE"] = str(folder / "cache")
        costs = [measure(folder / measure.__name__) for measure in (here, simulated, deployed)]
    write(BEGIN, END, table(costs, server_costs(), others))


if __name__ == "__main__":
    main()
