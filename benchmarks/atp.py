"""ATP beside a plain training step of the same model and batch: what a rate-learning step and a prediction cost."""

from __future__ import annotations

import time
from functools import partial

import torch
import torch.nn.functional as F

from acclimate.adapters.atp import ATP as Adapter
from acclimate.models.build import Build
from acclimate.models.modules import Modules
from acclimate.models.shallow_cnn import ShallowCNN
from acclimate.params import Params
from benchmarks.measure import Line, interleave

STEPS, BATCH = 40, 20


def run(repeats: int = 9) -> list[Line]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    build = Build(ShallowCNN, 10, (3, 32, 32), (0.5,) * 3, (0.25,) * 3)
    trained, frozen, adapted = build(), build().eval(), build().eval()
    x = torch.rand(BATCH, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    y = torch.randint(0, 10, (BATCH,))
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.01)
    modules = Modules(frozen)
    rates = {name: torch.tensor(0.01) for name in modules.tensors}
    adapter = Adapter(adapted, rates=rates)

    def training() -> None:
        trained.train()
        for _ in range(STEPS):
            optimizer.zero_grad()
            F.cross_entropy(trained(x), y).backward()
            optimizer.step()

    def learning(noted: Params | None = None) -> None:
        for _ in range(STEPS):
            modules.restore()
            h = noted or modules.directions(x)
            modules.move(rates, h)
            gradient, _ = modules.gradients(x, y)
            for name in rates:
                (h[name] * gradient[name]).sum()

    kept = partial(learning, modules.directions(x))

    def predicting() -> None:
        for _ in range(STEPS):
            adapter(x)

    sides = {"training": training, "learning": learning, "kept": kept, "predicting": predicting}
    for side in sides.values():
        side()
    seconds = interleave(sides, repeats, clock=time.process_time)
    step = sorted(seconds["training"])[len(seconds["training"]) // 2] / STEPS
    print(f"ShallowCNN, batch {BATCH}, one thread: a plain training step takes {1000 * step:.1f} ms")
    return [
        _cost("a step of ATP's rate learning, in plain training steps", seconds["learning"], seconds["training"]),
        _cost("the same with h kept from an earlier round", seconds["kept"], seconds["training"], 1.2),
        _cost("an ATP prediction, in plain training steps", seconds["predicting"], seconds["training"]),
    ]


def _cost(what: str, ours: list[float], plain: list[float], most: float = 2.4) -> Line:
    ratios = sorted(a / b for a, b in zip(ours, plain, strict=True))
    median = ratios[len(ratios) // 2]
    return Line(what, median, ratios[0], ratios[-1], f"<= {most}", median <= most)
