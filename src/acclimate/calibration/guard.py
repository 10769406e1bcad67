"""Teaching the guard: which signals, seen without labels, tell harm from help for one adapter on one model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from acclimate.contracts import Adapter, AdapterRecipe, Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.harm import FEATURES, RULE, Signals, Source
from acclimate.options import Count, Positive
from acclimate.played import drawn_classes, drawn_shift, nothing


class Sums(NamedTuple):
    """The normal equations of a linear rule: all that leaves a client.

    A gain is of as many images as both models differ on, so its variance goes with d, and squares are weighed by 1 / d.
    """

    squares: Tensor  # Σ n φ φᵀ / d; as φ begins with d, its first entry is the number of disagreements
    gains: Tensor  # Σ n φ g / d


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
    ridge: Positive = 10.0  # how many disagreements the default is worth

    exports = ("rule",)
    revision: ClassVar[int] = 1  # the ridge was 2, of images weighed by the square of d

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
        if not batches or self.adapter is None:
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
                phi = seen.features()
                if phi[0] > 0:
                    weight = len(rows) / phi[0]
                    sums = Sums(sums.squares + weight * torch.outer(phi, phi), sums.gains + weight * phi * gain)
        return sums

    def server_update(self, total: Sums, replies: Replies) -> Sums:
        new: Sums = replies.sum()
        return Sums(total.squares + new.squares, total.gains + new.gains)

    def export(self, total: Sums, state: None, client: int) -> Knowledge:
        return {"rule": solved(total, self.ridge, torch.tensor(RULE, dtype=torch.float64))}


def solved(sums: Sums, ridge: float, start: Tensor) -> Tensor:
    """The rule w = argmin Σ n (w · φ − g)² / d + ridge |w − start|².

    >>> solved(Sums(torch.eye(1), torch.tensor([3.0])), 1.0, torch.tensor([1.0]))
    tensor([2.])
    """
    eye = torch.eye(len(start), dtype=start.dtype)
    rule: Tensor = torch.linalg.solve(sums.squares + ridge * eye, sums.gains + ridge * start)
    return rule
