"""Adapters beside the same steps written by hand, and what channels last gives a wrapped model.

Both sides compute the same thing, which is asserted first. Processor time of this thread, batch 20 as in ATP's tables.
The loops by hand keep nothing, check nothing and have the layout that public code has, channels first; a second line
gives them our layout. MEMO adapts to every image alone: its limit is a training step on the copies of each image, one
image after another, since all copies of a batch at once no longer fit into the cache.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import acclimate as ac
from acclimate.adapters.em import EM
from acclimate.adapters.memo import marginal_entropy
from acclimate.adapters.t3a import T3A
from acclimate.contracts import Adapter
from acclimate.models.build import Build
from acclimate.models.resnet import resnet8
from acclimate.models.shallow_cnn import ShallowCNN
from benchmarks.measure import Line, interleave, ratio

Loop = Callable[[list[Tensor]], Tensor]
BATCH, BATCHES = 20, 20
SHAPE, MEAN, STD = (3, 32, 32), (0.5,) * 3, (0.25,) * 3


def run(repeats: int = 15) -> list[Line]:
    torch.set_num_threads(1)
    return [*_layouts(repeats), *_by_hand(repeats), *_memo(repeats // 3)]


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
    first = copy.deepcopy(net).to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    batches = [torch.rand(BATCH, *SHAPE) for _ in range(BATCHES)]
    last = [x.contiguous(memory_format=torch.channels_last) for x in batches]
    lines = []
    kinds: tuple[tuple[str, type[Adapter], Callable[[nn.Module], Loop]], ...] = (("EM", EM, _em), ("T3A", T3A, _t3a))
    for name, adapter, hand in kinds:
        public, same = hand(first), hand(net)
        sides: dict[str, Callable[[], Tensor]] = {
            "ours": lambda name=name: _answers(ac.wrap(net, name.lower()), batches),
            "public": partial(public, batches),
            "ours, same layout": lambda make=adapter: _answers(make(net), last),
            "same layout": partial(same, last),
        }
        for side in sides.values():
            torch.testing.assert_close(side(), sides["public"](), rtol=1e-3, atol=1e-4)
        taken = interleave(sides, repeats, clock=time.thread_time)
        what = f"{name}, batch {BATCH}, {BATCHES} batches: times faster than a loop by hand"
        lines.append(ratio(what, taken["public"], taken["ours"], 1.0))
        lines.append(
            ratio(f"{what}, channels last on both sides", taken["same layout"], taken["ours, same layout"], None)
        )
    return lines


def _memo(repeats: int, copies: int = 16) -> list[Line]:
    """MEMO beside nothing but the passes it consists of, image by image, and for all images of a batch at once."""
    torch.manual_seed(0)
    net = Build(ShallowCNN, 10, SHAPE, MEAN, STD)().eval()
    adapted = ac.wrap(net, "memo", copies=copies)
    x, many = (torch.rand(n, *SHAPE).contiguous(memory_format=torch.channels_last) for n in (BATCH, BATCH * copies))
    tensors = list(net.parameters())

    def passes(images: Tensor, of_each: Tensor) -> None:
        torch.autograd.grad(marginal_entropy(net(of_each)), tensors)
        with torch.no_grad():
            net(images)

    def one_by_one() -> None:
        for image, of_it in zip(x.split(1), many.split(copies), strict=True):
            passes(image, of_it)

    @torch.no_grad()
    def forward() -> None:
        net(x)

    sides: dict[str, Callable[[], object]] = {
        "ours": lambda: adapted(x), "limit": one_by_one, "at once": lambda: passes(x, many), "forward": forward
    }  # fmt: skip
    for side in sides.values():
        side()
    taken = interleave(sides, repeats, clock=time.thread_time)
    what = f"MEMO, {copies} copies, batch {BATCH}"
    return [
        ratio(f"{what}: in forward passes of the batch", taken["ours"], taken["forward"], None),
        ratio(f"{what}: in the passes it consists of", taken["ours"], taken["limit"], None),
        ratio(
            f"{what}: these passes for all images at once, in those image by image",
            taken["at once"],
            taken["limit"],
            None,
        ),
    ]


def _answers(adapter: nn.Module, batches: list[Tensor]) -> Tensor:
    return torch.cat([adapter(x) for x in batches])


def _em(net: nn.Module) -> Loop:
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


def _t3a(net: nn.Module) -> Loop:
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
