"""What BTFL, FedTHE, TTT and MEMO cost beyond a forward pass of the simple CNN, in forward passes of the same batch.

Processor time of this thread, not the clock on the wall: other programs slow all sides, but do not count.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import nn

from acclimate.adapters.btfl import BTFL
from acclimate.adapters.fedthe import FedTHE
from acclimate.adapters.memo import MEMO
from acclimate.adapters.ttt import TTT
from acclimate.contracts import Adapter
from acclimate.models.build import Build
from acclimate.models.rotation import rotation_head
from acclimate.models.simple_cnn import SimpleCNN
from acclimate.params import of
from benchmarks.measure import Line, interleave

LIMITS = {1: 1.0, 32: 0.1}  # batch size → what BTFL may cost, in forward passes
CALLS = {1: 200, 32: 15}  # in one turn; of the slow ones a twentieth


def run(repeats: int = 9) -> list[Line]:
    torch.set_num_threads(1)
    return [line for size in LIMITS for line in _compare(size, repeats)]


def _compare(size: int, repeats: int) -> list[Line]:
    torch.manual_seed(0)
    build = Build(SimpleCNN, 10, (3, 32, 32), (0.5,) * 3, (0.25,) * 3)
    x = torch.rand(size, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    adapters: dict[str, tuple[Adapter, int]] = {
        "BTFL": (_btfl(build()), CALLS[size]),
        "FedTHE, 20 steps": (_fedthe(build()), max(1, CALLS[size] // 20)),
        "TTT, 1 step": (_ttt(build()), max(1, CALLS[size] // 20)),
        "MEMO, 32 copies": (MEMO(build(), copies=32), 1),
    }
    plain = build().eval()

    @torch.no_grad()
    def forward() -> None:
        for _ in range(CALLS[size]):
            plain(x)

    sides: dict[str, Callable[[], object]] = {"forward": forward}
    sides |= {name: _repeated(adapter, x, calls) for name, (adapter, calls) in adapters.items()}
    for side in sides.values():
        side()
    seconds = interleave(sides, repeats, clock=time.thread_time)
    one = [taken / CALLS[size] for taken in seconds["forward"]]
    print(f"simple CNN, batch {size}, one thread: a forward pass takes {1e3 * sorted(one)[len(one) // 2]:.2f} ms")
    lines = []
    for name, (_, calls) in adapters.items():
        ratios = sorted((a / calls - b) / b for a, b in zip(seconds[name], one, strict=True))
        median, limit = ratios[len(ratios) // 2], LIMITS[size] if name == "BTFL" else None
        what = f"{name}, batch {size}: beyond a forward pass, in forward passes"
        required = "-" if limit is None else f"< {limit}"
        lines.append(Line(what, median, ratios[0], ratios[-1], required, None if limit is None else median < limit))
    return lines


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
