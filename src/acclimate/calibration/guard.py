"""Teaching the guard: which signals, seen without labels, tell harm from help for one adapter on one model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate.contracts import Adapter, AdapterRecipe, Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.harm import FEATURES, RULE, Signals, Source
from acclimate.options import Count, Positive


class Sums(NamedTuple):
    """The normal equations of a linear rule: all that leaves a client."""

    squares: Tensor  # Σ n φ φᵀ
    gains: Tensor  # Σ n φ g


@dataclass(frozen=True)
class Guard(Algorithm[Sums, None]):
    """Play an adapter on streams made of labelled validation data, and regress its gain on what the guard will see.

    A stream is a walk through `segments`, each with a shift of its own (noise, contrast, brightness, blur, of any
    strength, or none) and classes of its own (all alike, a few, one); between them come stretches without any
    information (noise, a constant) that nobody scores, and now and then the adapter starts anew. Least squares with a
    ridge towards the guard's default, so that few data change it little. The sums of both sides travel, images do not.
    """

    adapter: AdapterRecipe | None = None  # None: the model as it is, of which there is nothing to learn
    batch_size: Count = 20
    segments: Count = 24
    batches: Count = 8  # of each segment
    window: Positive = 80.0  # as the guard's
    ridge: Positive = 2.0  # how many disagreements the default is worth

    exports = ("rule",)

    @property
    def needs(self) -> tuple[str, ...]:
        return ("model", *self._watched.needs)

    @property
    def _watched(self) -> AdapterRecipe:
        return self.adapter or AdapterRecipe(Adapter)

    def init(self, task: Task) -> Sums:
        n = len(FEATURES)
        return Sums(torch.zeros(n, n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64))

    def client_update(self, total: Sums, state: None, client: Client) -> tuple[Reply, None]:
        batches = list(client.validation.batches(500))
        if not batches:
            return Reply(Sums(torch.zeros_like(total.squares), torch.zeros_like(total.gains))), None
        x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
        knowledge = {name: client.known[name] for name in self._watched.needs}
        adapter = self._watched(client.net(client.known["model"]), **knowledge)
        return Reply(self._play(adapter, x, y, client.task.classes)), None

    def _play(self, adapter: Adapter, x: Tensor, y: Tensor, classes: int) -> Sums:
        source, seen, first = Source(adapter), Signals(self.window), adapter.state()
        sums = Sums(torch.zeros(len(FEATURES), len(FEATURES), dtype=torch.float64), torch.zeros(len(FEATURES)).double())
        for segment in range(self.segments):
            change, weights = drawn_shift(x, segment % 3 > 0), drawn_classes(y, classes)
            if torch.rand(()) < 0.15:
                adapter.load_state(first)
            if torch.rand(()) < 0.2 and x.is_floating_point():
                adapter(nothing(x, self.batch_size))
            for _ in range(self.batches):
                rows = torch.multinomial(weights, self.batch_size, replacement=True)
                shown, right = change(x[rows]), y[rows]
                adapted, plain = adapter(shown), source(shown)
                if not adapted.isfinite().all():
                    adapter.load_state(first)
                    continue
                seen.add(plain, adapted, source.drift())
                gain = ((adapted.argmax(-1) == right).double() - (plain.argmax(-1) == right).double()).mean()
                phi, n = seen.features(), len(rows)
                sums = Sums(sums.squares + n * torch.outer(phi, phi), sums.gains + n * phi * gain)
        return sums

    def server_update(self, total: Sums, replies: Replies) -> Sums:
        new: Sums = replies.sum()
        return Sums(total.squares + new.squares, total.gains + new.gains)

    def export(self, total: Sums, state: None, client: int) -> Knowledge:
        return {"rule": solved(total, self.ridge, torch.tensor(RULE, dtype=torch.float64))}


def solved(sums: Sums, ridge: float, start: Tensor) -> Tensor:
    """The rule w = argmin Σ n (w · φ − g)² + ridge |w − start|².

    >>> solved(Sums(torch.eye(1), torch.tensor([3.0])), 1.0, torch.tensor([1.0]))
    tensor([2.])
    """
    eye = torch.eye(len(start), dtype=start.dtype)
    rule: Tensor = torch.linalg.solve(sums.squares + ridge * eye, sums.gains + ridge * start)
    return rule


def drawn_classes(y: Tensor, classes: int) -> Tensor:
    """How often each example is shown: all classes alike, a few of them mostly, or one alone."""
    there = y.unique()
    favoured = there[torch.randperm(len(there))[: int(torch.randint(1, 4, ()))]]
    kind = torch.rand(())
    others = 1.0 if kind < 0.5 else 0.05 if kind < 0.8 else 0.0
    share = torch.full((classes,), others).index_fill_(0, favoured, 1.0)
    return (share / torch.bincount(y, minlength=classes).clamp(min=1))[y]


def drawn_shift(x: Tensor, shifted: bool) -> Callable[[Tensor], Tensor]:
    """A shift of some kind and strength, or none; whatever is no image only gets noise, another scale or offset."""
    if not shifted or not x.is_floating_point():
        return lambda batch: batch
    least, most, spread = float(x.min()), float(x.max()), float(x.std())
    kind, strength = int(torch.randint(4 if x.dim() == 4 else 3, ())), float(torch.rand(()))
    sign = 1.0 if torch.rand(()) < 0.5 else -1.0

    def change(batch: Tensor) -> Tensor:
        if kind == 0:
            batch = batch + 2.0 * strength * spread * torch.randn_like(batch)
        elif kind == 1:
            mean = batch.flatten(1).mean(1).view(-1, *[1] * (batch.dim() - 1))
            batch = mean + (1 - 0.9 * strength) * (batch - mean)
        elif kind == 2:
            batch = batch + 2.0 * sign * strength * spread
        else:
            size = 3 if strength < 0.5 else 5
            batch = F.avg_pool2d(F.pad(batch, [size // 2] * 4, mode="replicate"), size, stride=1)
        return batch.clamp(least, most)

    return change


def nothing(x: Tensor, count: int) -> Tensor:
    """Examples without any information: noise, or one value everywhere."""
    noise = torch.rand(count, *x.shape[1:], dtype=x.dtype)
    level = noise if torch.rand(()) < 0.5 else torch.rand(()).to(x.dtype).expand_as(noise)
    return x.min() + (x.max() - x.min()) * level
