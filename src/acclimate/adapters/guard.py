"""A guard around any adapter: the source model answers whenever adaptation seems to do harm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from acclimate.adapters.around import Around
from acclimate.adapters.tent import Tent
from acclimate.contracts import AdapterRecipe
from acclimate.harm import DEFAULT, Rule, Signals, Source
from acclimate.options import Count, NonNegative, Positive
from acclimate.trees import Nest

KEPT = ("good", "batches", "images", "trusted", "wait")  # in its state, as they are
SOON, LONGER = 10, 2  # how many waits after its start is soon to fall, and how much longer the next wait is then


class Guard(Around):
    """Watch an adapter without labels; keep its last good state, roll back, start anew, or answer in its place.

    While it is not trusted, the adapter learns beside the source model and is judged by every image, else by every
    `every`-th. A rule says what its other answers are worth (`acclimate.harm`), a mean over `window` images what it
    gains, less `doubt` standard errors. It is trusted once it wins `least` of all images, `minimum` images after its
    start or later, until it loses as many and `margin` of those on which both differ (`most` of all at most), or agrees
    less often than `agreement` of guessing. Then it goes back to its last good state, from there to its first, and is
    heard where an answer is worth more than the source model's. If it falls soon, it waits longer each time.
    """

    # 3: heard if not trusted, waits longer after an early fall; 4: `agreement`; 5: `most`; 6: the stream's shares
    revision: ClassVar[int] = 6

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
        most: NonNegative = 0.01,
        least: float = 0.002,
        minimum: Count = 40,
        agreement: NonNegative = 0.5,
        **knowledge: Nest,
    ) -> None:
        inner = adapter(net, **{name: of for name, of in knowledge.items() if name != "rule"})
        super().__init__(inner, Source(inner))
        self.rule: Rule = knowledge["rule"] if calibrated else DEFAULT
        self.every, self.doubt, self.margin, self.most, self.least = every, doubt, margin, most, least
        self.seen, self._first = Signals(window, self.rule.classes), self.inner.state()
        self.trusted, self.batches = False, 0
        self.minimum, self.agreement, self.images, self.wait = minimum, agreement, 0, minimum  # since, after its start
        self.good: Nest = None  # the adapter's last state that gained; None: it has not gained yet

    @classmethod
    def requires(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        return (*options.get("adapter", AdapterRecipe(Tent)).needs, *(["rule"] if options.get("calibrated") else []))

    def answer(self, x: Tensor) -> Tensor:
        adapted: Tensor = self.inner(x)
        if not self.sound(adapted):
            return self.source(x)
        step = self.every if self.trusted else 1
        some = slice(-self.images % step, None, step)  # every so many images of the stream, however they come
        self.images += len(x)
        source: Tensor = self.source(x[some]) if len(x[some]) else adapted[some]
        worth = self._judge(source, adapted[some], step * len(source))
        if self.trusted:
            return adapted
        return self.source(x) if len(source) < len(x) else torch.where(worth > 0, adapted, source)

    def learn(self, x: Tensor) -> Tensor:
        """Where clients exchange before they predict: judged every few batches."""
        self.inner.adapt(x)
        checks, self.batches, self.images = self.batches % self.every == 0, self.batches + 1, self.images + len(x)
        adapted = self.inner.predict(x) if checks else torch.zeros(1)
        if self.sound(adapted) and checks:
            self._judge(self.source(x), adapted, self.every * len(x))
            if self.images == 0:  # what it went back to learns too, and is what may be shared
                self.inner.adapt(x)
                self.sound(adapted)
        return adapted

    def _judge(self, source: Tensor, adapted: Tensor, images: int) -> Tensor:
        """Decide by some of `images` whether the adapter is trusted; what each of its answers is worth, once heard."""
        worth = torch.zeros(len(source), 1).double()
        if not images or not source.isfinite().all():
            return worth
        phi = self.seen.add(source, adapted, self.source.inputs, self.source.drift(), images)
        gain, error = self.rule.gain(self.seen.shown)
        self.figures["gain"], differ, sure = gain, self.seen.shown[0], gain - self.doubt * error
        strays = differ > 1 - self.agreement / source.shape[-1] and self.images >= self.minimum
        if strays or (sure if self.trusted else gain) < -self.least - (self.margin * differ).clamp(max=self.most):
            self.go_back()
        elif self.images >= self.wait:
            ours, theirs = (logits.double().softmax(-1).argmax(-1) for logits in (source, adapted))  # as in `phi`
            worth[ours != theirs, 0] = phi @ self.rule.weights
            if sure >= self.least:
                self.trusted, self.good = True, self.inner.state()
        return worth

    def go_back(self) -> None:
        """Go to the last good state; if there is none, or it has just failed too, to the first."""
        if self.trusted:
            self.wait = LONGER * self.wait if self.images < SOON * self.wait else self.minimum
        self.inner.load_state(self._first if self.good is None or not self.trusted else self.good)
        self.trusted, self.images = False, 0
        self.seen.restart()

    def state(self) -> Nest:
        return {"inner": self.inner.state(), "seen": self.seen.state(), **{name: getattr(self, name) for name in KEPT}}

    def load_state(self, state: Nest) -> None:
        self.inner.load_state(state["inner"])
        self.seen.load_state(state["seen"])
        vars(self).update({name: state[name] for name in KEPT})
