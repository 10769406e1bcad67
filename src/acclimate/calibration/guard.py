"""Teaching the guard: which signals, seen without labels, tell harm from help for one adapter on one model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import ClassVar

import torch
from torch import Tensor

from acclimate.contracts import Adapter, AdapterRecipe, Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.harm import Source, width
from acclimate.mixture import Answers
from acclimate.options import Count, Positive
from acclimate.played import drawn_classes, drawn_shift, nothing
from acclimate.rule import DEFAULT, Said, Sums, solved, summed


@dataclass(frozen=True)
class Guard(Algorithm[Sums, None]):
    """Play an adapter on streams made of labelled validation data, and regress its gains on what the guard will see.

    A stream is a walk through `segments`, each with a shift of its own (noise, contrast, offset, tone, blur, coarse
    pixels, haze, or none) and classes of its own (all alike, a few, one); between them come stretches of noise or a
    constant that nobody scores, and now and then the adapter starts anew. Least squares with a ridge towards the
    guard's default, so that few data change it little. Sums travel, images do not.

    Clients also say the source model's mean features of each class. In the first round each compares its streams with
    its own, from the second on with those of all, as a guard will: with several clients two rounds are better than one,
    and the last one counts.
    """

    adapter: AdapterRecipe | None = None  # None: the model as it is, of which there is nothing to learn
    batch_size: Count = 40  # in some segments half of it, or a tenth
    segments: Count = 36  # how much a rule is worth hangs on them more than on anything else
    images: Count = 480  # of each segment; few compared with `window` teach that what the last images show is soon over
    window: Positive = 80.0  # as the guard's
    ridge: Positive = 3.0  # how many disagreements the default is worth

    exports = ("rule",)
    # 2: other signals, of single images, and more kinds of shift; 3: longer segments; 4: the stream's shares, and more;
    # 5: waves
    revision: ClassVar[int] = 5

    @property
    def needs(self) -> tuple[str, ...]:
        return ("model", *self._watched.needs)

    @property
    def _watched(self) -> AdapterRecipe:
        return self.adapter or AdapterRecipe(Adapter)

    def init(self, task: Task) -> Sums:
        return summed((), self.window, Answers.none(task.classes, width(task.build(None), task.classes)))

    def client_update(self, total: Sums, state: None, client: Client) -> tuple[Reply, None]:
        batches = list(client.validation.batches(500))
        if not batches or self.adapter is None:
            return Reply(self.init(client.task)), None
        x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
        adapter = self._watched(client.net(client.known["model"]), **{n: client.known[n] for n in self._watched.needs})
        own = self.answers(adapter, batches, client.task.classes)
        everybody = total.answers if total.answers.counts.any() else own
        sums = summed(self.played(adapter, x, y, client.task.classes), self.window, everybody)
        return Reply(sums._replace(answers=own)), None

    def answers(self, adapter: Adapter, batches: Iterable[tuple[Tensor, Tensor]], classes: int) -> Answers:
        """How the model that an adapter starts from sees labelled examples."""
        source = Source(adapter)
        return reduce(Answers.plus, (Answers.to(source.look(x).features, y, classes) for x, y in batches))

    def played(self, adapter: Adapter, x: Tensor, y: Tensor, classes: int) -> Iterator[Said]:
        """What both models say on a stream made of these examples."""
        source, first = Source(adapter), adapter.state()
        for segment in range(self.segments):
            change, weights = drawn_shift(x, segment % 3 > 0), drawn_classes(y, classes)
            size = max(1, self.batch_size // (1, 2, 10)[int(torch.randint(3, ()))])
            if torch.rand(()) < 0.15:
                adapter.load_state(first)
            if torch.rand(()) < 0.2 and x.is_floating_point():
                adapter(nothing(x, size))
            for _ in range(max(1, self.images // size)):
                rows = torch.multinomial(weights, size, replacement=True)
                shown = change(x[rows])
                adapted, plain = adapter(shown), source.look(shown)
                if adapted.isfinite().all():
                    yield Said(plain, adapted, source.drift(), y[rows])
                else:
                    adapter.load_state(first)

    def server_update(self, total: Sums, replies: Replies) -> Sums:
        sums: Sums = replies.sum()
        return sums

    def export(self, total: Sums, state: None, client: int) -> Knowledge:
        return {"rule": solved(total, self.ridge, DEFAULT.weights)}
