"""Adapters beside the same steps written by hand, and what channels last gives a wrapped model.

Both sides compute the same thing, which is asserted first. Processor time of this thread, batch 20 as in ATP's tables.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import acclimate as ac
from acclimate.adapters.em import EM
from acclimate.adapters.t3a import T3A
from acclimate.models.build import Build
from acclimate.models.resnet import resnet8
from acclimate.models.shallow_cnn import ShallowCNN
from benchmarks.measure import Line, interleave, ratio

BATCH, BATCHES = 20, 20
SHAPE, MEAN, STD = (3, 32, 32), (0.5,) * 3, (0.25,) * 3


def run(repeats: int = 15) -> list[Line]:
    torch.set_num_threads(1)
    return [*_layouts(repeats), *_by_hand(repeats)]


def _layouts(repeats: int) -> list[Line]:
    """Wrapped Tent in both layouts."""
    lines = []
    for name, make in {"shallow CNN": ShallowCNN, "ResNet-8": resnet8}.items():
        torch.manual_seed(0)
        net = Build(make, 10, SHAPE, MEAN, STD)()
        last, first = ac.wrap(net, "tent"), ac.wrap(net, "tent")
        first.adapter.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        first._layout._untried = False
        x = torch.rand(64, *SHAPE)
        torch.testing.assert_close(last(x), first(x), rtol=1e-3, atol=1e-4)
        sides = {"first": _calls(first, x), "last": _calls(last, x)}
        taken = interleave(sides, repeats, clock=time.thread_time)
        what = f"wrapped Tent, {name}, batch 64: channels last, times faster than first"
        lines.append(ratio(what, taken["first"], taken["last"], 1.3 if name == "shallow CNN" else None))
    return lines


def _by_hand(repeats: int) -> list[Line]:
    """EM and T3A over a stream of batches, beside a loop that does the same and nothing else."""
    torch.manual_seed(0)
    net = Build(ShallowCNN, 10, SHAPE, MEAN, STD)().eval()
    batches = [torch.rand(BATCH, *SHAPE).contiguous(memory_format=torch.channels_last) for _ in range(BATCHES)]
    lines = []
    for name, ours, theirs in (("EM", lambda: EM(net), _em(net)), ("T3A", lambda: T3A(net), _t3a(net))):
        torch.testing.assert_close(_answers(ours(), batches), theirs(batches), rtol=1e-4, atol=1e-5)
        sides: dict[str, Callable[[], object]] = {
            "ours": lambda make=ours: _answers(make(), batches),
            "theirs": lambda run=theirs: run(batches),
        }
        taken = interleave(sides, repeats, clock=time.thread_time)
        what = f"{name}, batch {BATCH}, {BATCHES} batches: times faster than a loop by hand"
        lines.append(ratio(what, taken["theirs"], taken["ours"], 1.0))
    return lines


def _answers(adapter: nn.Module, batches: list[Tensor]) -> Tensor:
    return torch.cat([adapter(x) for x in batches])


def _em(net: nn.Module) -> Callable[[list[Tensor]], Tensor]:
    @torch.no_grad()
    def loop(batches: list[Tensor]) -> Tensor:
        answers = []
        for x in batches:
            p = net(x).softmax(1)
            posterior = p
            for _ in range(2):
                weighted = p * posterior.mean(0)
                posterior = weighted / weighted.sum(1, keepdim=True)
            answers.append(posterior.log())
        return torch.cat(answers)

    return loop


def _t3a(net: nn.Module) -> Callable[[list[Tensor]], Tensor]:
    head = next(m for m in reversed(list(net.modules())) if isinstance(m, nn.Linear))

    @torch.no_grad()
    def loop(batches: list[Tensor]) -> Tensor:
        caught: list[Tensor] = []
        hook = head.register_forward_pre_hook(lambda _, args: caught.append(args[0]))
        supports, labels, answers = head.weight, F.linear(head.weight, head.weight, head.bias).argmax(1), []
        for x in batches:
            logits = net(x)
            z = caught.pop()
            supports, labels = torch.cat([supports, z]), torch.cat([labels, logits.argmax(1)])
            weights = F.one_hot(labels, 10).float().T @ F.normalize(supports, dim=1)
            answers.append(z @ F.normalize(weights, dim=1).T)
        hook.remove()
        return torch.cat(answers)

    return loop


def _calls(adapted: nn.Module, x: Tensor, calls: int = 3) -> Callable[[], None]:
    def side() -> None:
        for _ in range(calls):
            adapted(x)

    return side
