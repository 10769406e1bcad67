"""Two augmented views of a batch beside a training step of the simple CNN on it: `python -m benchmarks.augment`."""

from __future__ import annotations

import statistics
import time

import torch
import torch.nn.functional as F

from acclimate.data.augment import Views
from acclimate.models.build import Build
from acclimate.models.simple_cnn import SimpleCNN
from benchmarks.measure import Line, interleave

BATCH, STEPS, MOST = 64, 10, 0.15


def run(repeats: int = 15) -> list[Line]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = Build(SimpleCNN, 10, (3, 32, 32), (0.5,) * 3, (0.25,) * 3, {"bias": True})()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    x = torch.rand(BATCH, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    y, views = torch.randint(0, 10, (BATCH,)), Views()

    def training() -> None:
        for _ in range(STEPS):
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()

    def viewing() -> None:
        for _ in range(STEPS):
            views(torch.cat([x, x]))

    sides = {"training": training, "viewing": viewing}
    for side in sides.values():
        side()
    seconds = interleave(sides, repeats, clock=time.process_time)
    ratios = [a / b for a, b in zip(seconds["viewing"], seconds["training"], strict=True)]
    median, step = statistics.median(ratios), statistics.median(seconds["training"]) / STEPS
    print(f"simple CNN, batch {BATCH}, one thread: a plain training step takes {1000 * step:.1f} ms")
    what = f"both views of {BATCH} images, in plain training steps on them"
    return [Line(what, median, min(ratios), max(ratios), f"<= {MOST}", median <= MOST)]


if __name__ == "__main__":
    for line in run():
        print(line)
