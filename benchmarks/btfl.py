"""What BTFL, FedTHE, TTT and MEMO cost beyond a forward pass of the simple CNN, and what a training step of it costs.

Adapters are counted in forward passes of the same batch. A training step at batch 32 is 1.24 billion multiplications
and additions, nearly all in the convolutions (backward, the second one costs twice its forward pass, the first once),
so its limit is the time of a matrix product of as many. What it takes above that: convolutions run at four fifths of
the speed of the matrix product, and pooling, ReLUs and SGD take 2.5 of 20 ms. Pages that the system takes back after a
step and gives again are the rest, where memory is not kept (`engine/memory.py`).

Processor time of this thread, not the clock on the wall: other programs slow all sides, but do not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from acclimate.adapters.btfl import BTFL
from acclimate.adapters.fedthe import FedTHE
from acclimate.adapters.memo import MEMO
from acclimate.adapters.ttt import TTT
from acclimate.contracts import Adapter
from acclimate.engine.memory import keep_freed_memory
from acclimate.examples import Examples, Images
from acclimate.models.build import Build
from acclimate.models.rotation import rotation_head
from acclimate.models.simple_cnn import SimpleCNN
from acclimate.params import of
from acclimate.sgd import LocalSGD
from benchmarks.measure import Line, interleave

LIMITS = {1: 1.0, 32: 0.1}  # batch size → what BTFL may cost, in forward passes
CALLS = {1: 40, 32: 3}  # in one turn; short turns, so that neighbours meet the same weather


SHAPE = 1024, 592  # of a matrix whose product with its transpose takes as many operations as a training step
STEPS = 5  # in one turn


def run(repeats: int = 9) -> list[Line]:
    torch.set_num_threads(1)
    keep_freed_memory()  # as in worker processes
    return [_training(repeats), *(line for size in LIMITS for line in _compare(size, repeats))]


def _training(repeats: int) -> Line:
    torch.manual_seed(0)
    net = Build(SimpleCNN, 10, (3, 32, 32), (0.5,) * 3, (0.25,) * 3)()
    pixels = np.random.default_rng(0).integers(0, 256, (32 * STEPS, 32, 32, 3), dtype=np.uint8)
    examples = Examples(Images(pixels), torch.randint(10, (32 * STEPS,)), torch.arange(32 * STEPS))
    sgd, matrix = LocalSGD(lr=0.01, batch_size=32, weight_decay=5e-4), torch.rand(SHAPE)
    transposed = matrix.T.contiguous()

    def products() -> None:
        for _ in range(STEPS):
            torch.mm(matrix, transposed)

    sides: dict[str, Callable[[], object]] = {"steps": lambda: sgd.fit(net, examples, None), "products": products}
    for side in sides.values():
        side()
    taken = interleave(sides, 5 * repeats, clock=time.thread_time)
    ratios = sorted(a / b for a, b in zip(taken["steps"], taken["products"], strict=True))
    print(f"simple CNN, batch 32, one thread: a training step takes {1e3 * min(taken['steps']) / STEPS:.1f} ms, "
          f"a matrix product of as many operations {1e3 * min(taken['products']) / STEPS:.1f} ms")  # fmt: skip
    spread = ratios[len(ratios) // 2], ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
    return Line("simple CNN, batch 32: a training step, in matrix products", *spread, "-")


def _compare(size: int, repeats: int) -> list[Line]:
    torch.manual_seed(0)
    build = Build(SimpleCNN, 10, (3, 32, 32), (0.5,) * 3, (0.25,) * 3)
    x = torch.rand(size, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    plain = build().eval()

    @torch.no_grad()
    def forward() -> None:
        for _ in range(CALLS[size]):
            plain(x)

    slow = {
        "FedTHE, 20 steps": _repeated(_fedthe(build()), x, 1),
        "TTT, 1 step": _repeated(_ttt(build()), x, 1),
        "MEMO, 32 copies": _repeated(MEMO(build(), copies=32), x, 1),
    }
    for side in (forward, *slow.values()):
        side()
    fast = interleave(
        {"forward": forward, "BTFL": _repeated(_btfl(build()), x, CALLS[size])}, 10 * repeats, clock=time.thread_time
    )
    taken = interleave({"forward": forward, **slow}, repeats, clock=time.thread_time)
    one = sorted(fast["forward"])[len(fast["forward"]) // 2] / CALLS[size]
    print(f"simple CNN, batch {size}, one thread: a forward pass takes {1e3 * one:.2f} ms")
    lines = [_beyond("BTFL", size, fast["BTFL"], CALLS[size], fast["forward"], LIMITS[size])]
    return lines + [_beyond(name, size, taken[name], 1, taken["forward"], None) for name in slow]


def _beyond(name: str, size: int, seconds: list[float], calls: int, forward: list[float], limit: float | None) -> Line:
    """What a call costs beyond a forward pass of its neighbouring turn, in forward passes."""
    ratios = sorted(a / calls / (b / CALLS[size]) - 1 for a, b in zip(seconds, forward, strict=True))
    spread = ratios[len(ratios) // 2], ratios[len(ratios) // 10], ratios[-1 - len(ratios) // 10]
    what = f"{name}, batch {size}: beyond a forward pass, in forward passes"
    return Line(what, *spread, "-") if limit is None else Line(what, *spread, f"< {limit}", spread[0] < limit)


def _repeated(adapter: Adapter, x: torch.Tensor, calls: int) -> Callable[[], None]:
    def side() -> None:
        for _ in range(calls):
            adapter(x)

    return side


def _btfl(net: nn.Module) -> Adapter:
    densities = {"local": torch.rand(64) * 0.8 + 0.1, "global": torch.rand(64) * 0.8 + 0.1}
    entropies = {"local": torch.tensor(0.5), "global": torch.tensor(1.0)}
    return BTFL(net, head=torch.randn(10, 64) * 0.1, densities=densities, entropies=entropies)


def _fedthe(net: nn.Module) -> Adapter:
    return FedTHE(net, head=torch.randn(10, 64) * 0.1, means={"local": torch.rand(64), "global": torch.rand(64)})


def _ttt(net: nn.Module) -> Adapter:
    return TTT(net, rotation=of(rotation_head(net)))
