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
from acclimate.harm import RULE, Signals, Source
from acclimate.options import Count, Positive
from acclimate.trees import Nest

KEPT = ("good", "batches", "trusted", "promising")  # in its state, as they are


class Guard(Around):
    """Watch an adapter without labels; keep its last good state, roll back, start anew, or answer in its place.

    Every `every` batches both models predict, and a rule estimates from entropies, histograms of predicted classes,
    disagreement and drift what the adapter gains on the last images (`acclimate.harm`): enough if it wins `margin` of
    those on which both differ, on balance, and `least` of all. Once two checks have said so, the second one batch after
    the first, it answers; else it goes back to its last good state, if that fails too to its first, and waits.
    """

    revision: ClassVar[int] = 1  # the margin was one of all images

    def __init__(
        self,
        net: nn.Module,
        *,
        adapter: AdapterRecipe = AdapterRecipe(Tent),  # noqa: B008  (frozen)
        calibrated: bool = False,  # by the rule that the phase `guard` has learnt for this adapter, not by the default
        every: Count = 3,
        window: Positive = 80.0,
        margin: float = 0.1,
        least: float = 0.002,
        **knowledge: Nest,
    ) -> None:
        inner = adapter(net, **{name: of for name, of in knowledge.items() if name != "rule"})
        super().__init__(inner, Source(inner))
        rule = knowledge["rule"] if calibrated else torch.tensor(RULE)
        self.rule, self.every, self.margin, self.least = rule.double(), every, margin, least
        self.seen, self._first, self.batches = Signals(window), self.inner.state(), 0
        self.trusted = self.promising = False  # one good check is a promise
        self.good: Nest = None  # the adapter's last state that gained; None: it has not gained since it started

    @classmethod
    def requires(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        return (*options.get("adapter", AdapterRecipe(Tent)).needs, *(["rule"] if options.get("calibrated") else []))

    def answer(self, x: Tensor) -> Tensor:
        """Adapt and predict; the adapter waits while the source model answers, but for the checks."""
        checks = self._due()
        adapted: Tensor | None = self.inner(x) if checks or self.trusted else None
        if adapted is None or not self._sound(adapted):
            return self.source(x)
        if not checks:
            return adapted
        source = self.source(x)
        self._judge(source, adapted)
        return adapted if self.trusted else source

    def learn(self, x: Tensor) -> Tensor:
        """As where clients exchange before they predict: then there is something to share every time."""
        checks = self._due()
        self.inner.adapt(x)
        adapted = self.inner.predict(x) if checks else torch.zeros(1)
        if self._sound(adapted) and checks:
            self._judge(self.source(x), adapted)
            if not (self.trusted or self.promising):  # what it went back to learns too, and is what may be shared
                self.inner.adapt(x)
                self._sound(adapted)
        return adapted

    def only_predict(self, x: Tensor) -> Tensor:
        adapted = self.inner.predict(x) if self.trusted else None
        return self.source(x) if adapted is None or not adapted.isfinite().all() else adapted

    def _due(self) -> bool:
        self.batches += 1
        return self.promising or (self.batches - 1) % self.every == 0

    def _sound(self, adapted: Tensor) -> bool:
        """Whether the adapter is finite; if not, it goes back."""
        if adapted.isfinite().all() and trees.finite(self.inner.state()):
            return True
        self._go_back()
        return False

    def _judge(self, source: Tensor, adapted: Tensor) -> None:
        """Estimate what the adapter gains, and decide who answers until the next check."""
        self.seen.add(source, adapted, self.source.drift())
        phi = self.seen.features()
        self.figures["gain"] = gain = self.rule @ phi
        if gain < self.margin * phi[0] + self.least:
            self._go_back()
        elif self.trusted or self.promising:
            self.trusted, self.promising, self.good = True, False, self.inner.state()
        else:
            self.promising = True

    def _go_back(self) -> None:
        """To the last good state; if that was none, or has just failed too, to the first."""
        self.inner.load_state(self._first if self.good is None or not self.trusted else self.good)
        self.trusted = self.promising = False

    def state(self) -> Nest:
        return {"inner": self.inner.state(), "seen": self.seen.state(), **{name: getattr(self, name) for name in KEPT}}

    def load_state(self, state: Nest) -> None:
        self.inner.load_state(state["inner"])
        self.seen.load_state(state["seen"])
        vars(self).update({name: state[name] for name in KEPT})
