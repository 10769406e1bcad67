"""A guard around any adapter: the source model answers whenever adaptation seems to do harm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from acclimate import trees
from acclimate.adapters.around import Around
from acclimate.adapters.tent import Tent
from acclimate.contracts import AdapterRecipe
from acclimate.harm import DEFAULT, Rule, Signals, Source
from acclimate.options import Count, NonNegative, Positive
from acclimate.trees import Nest

KEPT = ("good", "batches", "images", "trusted")  # in its state, as they are


class Guard(Around):
    """Watch an adapter without labels; keep its last good state, roll back, start anew, or answer in its place.

    While the source model answers, the adapter learns beside it and is judged by every image, while the adapter
    answers, by every `every`-th. A rule estimates what its other answers are worth (`acclimate.harm`), a running mean
    over `window` images what it gains, less `doubt` standard errors. It answers once it wins `least` of all images,
    `minimum` images after its start or later, and until it loses as many and `margin` of those on which both differ.
    Then it goes back to its last good state, and from there to its first.
    """

    revision: ClassVar[int] = 2  # the adapter waited where the source model answered, and was judged every few batches

    def __init__(
        self,
        net: nn.Module,
        *,
        adapter: AdapterRecipe = AdapterRecipe(Tent),  # noqa: B008  (frozen)
        calibrated: bool = False,  # by the rule that the phase `guard` has learnt for this adapter, not by the default
        every: Count = 3,
        window: Positive = 80.0,
        doubt: NonNegative = 1.0,
        margin: float = 0.1,
        least: float = 0.002,
        minimum: Count = 40,
        **knowledge: Nest,
    ) -> None:
        inner = adapter(net, **{name: of for name, of in knowledge.items() if name != "rule"})
        super().__init__(inner, Source(inner))
        self.rule: Rule = knowledge["rule"] if calibrated else DEFAULT
        self.every, self.doubt, self.minimum = every, doubt, minimum
        self.margin, self.least, self.trusted = margin, least, False
        self.seen, self._first, self.batches = Signals(window), self.inner.state(), 0
        self.images = 0  # since it started
        self.good: Nest = None  # the adapter's last state that gained; None: it has not gained yet

    @classmethod
    def requires(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        return (*options.get("adapter", AdapterRecipe(Tent)).needs, *(["rule"] if options.get("calibrated") else []))

    def answer(self, x: Tensor) -> Tensor:
        adapted = self.inner(x)
        if not self._sound(adapted):
            return self.source(x)
        step = self.every if self.trusted else 1
        some = slice(-self.images % step, None, step)  # every so many images of the stream, however they come
        self.images += len(x)
        source: Tensor = self.source(x[some]) if len(x[some]) else adapted[some]
        self._judge(source, adapted[some], step * len(source))
        return adapted if self.trusted else source if len(source) == len(x) else self.source(x)

    def learn(self, x: Tensor) -> Tensor:
        """Where clients exchange before they predict: judged every few batches."""
        self.inner.adapt(x)
        checks = self.batches % self.every == 0
        self.batches, self.images = self.batches + 1, self.images + len(x)
        adapted = self.inner.predict(x) if checks else torch.zeros(1)
        if self._sound(adapted) and checks:
            self._judge(self.source(x), adapted, self.every * len(x))
            if self.images == 0:  # what it went back to learns too, and is what may be shared
                self.inner.adapt(x)
                self._sound(adapted)
        return adapted

    def only_predict(self, x: Tensor) -> Tensor:
        adapted = self.inner.predict(x) if self.trusted else None
        return self.source(x) if adapted is None or not adapted.isfinite().all() else adapted

    def _sound(self, adapted: Tensor) -> bool:
        """Whether the adapter is finite; if not, it goes back."""
        if adapted.isfinite().all() and trees.finite(self.inner.state()):
            return True
        self._go_back()
        return False

    def _judge(self, source: Tensor, adapted: Tensor, images: int) -> None:
        """Estimate what the adapter gains from the answers to some of `images`, and decide who answers."""
        if not images or not source.isfinite().all():
            return
        self.seen.add(source, adapted, self.source.inputs, self.source.drift(), images)
        gain, error = self.rule.gain(self.seen.shown)
        self.figures["gain"], sure = gain, gain - self.doubt * error
        if (sure if self.trusted else gain) < -self.margin * self.seen.shown[0] - self.least:
            self._go_back()
        elif sure >= self.least and self.images >= self.minimum:
            self.trusted, self.good = True, self.inner.state()

    def _go_back(self) -> None:
        """To the last good state; if there is none, or it has just failed too, to the first."""
        self.inner.load_state(self._first if self.good is None or not self.trusted else self.good)
        self.trusted, self.images = False, 0
        self.seen.restart()

    def state(self) -> Nest:
        return {"inner": self.inner.state(), "seen": self.seen.state(), **{name: getattr(self, name) for name in KEPT}}

    def load_state(self, state: Nest) -> None:
        self.inner.load_state(state["inner"])
        self.seen.load_state(state["seen"])
        vars(self).update({name: state[name] for name in KEPT})
