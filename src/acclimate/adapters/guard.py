"""A guard around any adapter: the source model answers whenever adaptation seems to do harm."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from acclimate.adapters.around import Around
from acclimate.adapters.tent import Tent
from acclimate.contracts import AdapterRecipe
from acclimate.harm import Look, Signals
from acclimate.options import Count, NonNegative, Positive
from acclimate.rule import DEFAULT, Rule
from acclimate.trees import Nest

KEPT = ("good", "batches", "images", "trusted", "wait")  # in its state, as they are
SOON, LONGER = 10, 2  # how many waits after its start is soon to fall, and how much longer the next wait is then


class Guard(Around):
    """Watch an adapter without labels; keep its last good state, roll back, start anew, or answer in its place.

    While it is not trusted, it learns beside the source model and is judged by every image, else by every `every`-th. A
    rule (`acclimate.rule`) says what it gains, in the mean over `window` images and less `doubt` standard errors. It is
    trusted once it wins `least` of all images, `minimum` after its start or later, until it loses as many and `margin`
    of those on which both differ (`most` of all at most), or agrees less often than `agreement` of guessing. Then it
    goes back to its last good state, from there to its first, and is heard where the rule prefers its answer.
    """

    revision: ClassVar[int] = 7  # 3: heard, waits after an early fall; 4: agreement; 5: most; 6: shares; 7: waves

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
        most: NonNegative = 0.005,
        least: float = 0.002,
        minimum: Count = 40,
        agreement: NonNegative = 0.5,
        **knowledge: Nest,
    ) -> None:
        super().__init__(adapter(net, **{name: of for name, of in knowledge.items() if name != "rule"}))
        self.rule: Rule = knowledge["rule"].checked() if calibrated else DEFAULT
        self.every, self.doubt, self.margin, self.most, self.least = every, doubt, margin, most, least
        self.seen, self._first = Signals(window, self.rule.classes), self.inner.state()
        self.trusted, self.batches, self.agreement, self.minimum = False, 0, agreement, minimum
        self.images, self.wait, self.good = 0, minimum, None  # since and after its start; its last state that gained

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
        if not len(x[some]):
            return adapted
        source = self.source.look(x[some])
        worth = self._judge(source, adapted[some], step * len(x[some]))
        if self.trusted:
            return adapted
        return self.source(x) if step > 1 else torch.where(worth > 0, adapted, source.logits)

    def learn(self, x: Tensor) -> Tensor:
        """Where clients exchange before they predict: judged every few batches."""
        self.inner.adapt(x)
        checks, self.batches, self.images = self.batches % self.every == 0, self.batches + 1, self.images + len(x)
        adapted = self.inner.predict(x) if checks else torch.zeros(1)
        if self.sound(adapted) and checks:
            self._judge(self.source.look(x), adapted, self.every * len(x))
            if self.images == 0:  # what it went back to learns too, and is what may be shared
                self.inner.adapt(x)
                self.sound(adapted)
        return adapted

    def _judge(self, source: Look, adapted: Tensor, images: int) -> Tensor:
        """Decide by some of `images` whether the adapter is trusted; what each of its answers is worth, once heard."""
        worth = torch.zeros(len(adapted), 1).double()
        if not source.logits.isfinite().all():
            return worth
        which, phi = self.seen.add(source, adapted, self.source.drift(), images)
        gain, error = self.rule.gain(self.seen.shown)
        self.figures["gain"], differ, sure = gain, self.seen.shown[0], gain - self.doubt * error
        strays = differ > 1 - self.agreement / adapted.shape[-1] and self.images >= self.minimum
        if strays or (sure if self.trusted else gain) < -self.least - (self.margin * differ).clamp(max=self.most):
            self.go_back()
        elif self.images >= self.wait:
            worth[which, 0] = phi @ self.rule.weights
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
