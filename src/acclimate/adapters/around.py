"""What an adapter around another has in common with it: it moves and shares the same, and meets what is finite."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from acclimate import trees
from acclimate.contracts import Adapter, Limits
from acclimate.harm import Source
from acclimate.params import Params


class Around(Adapter):
    """Shares what the adapter inside does and nothing of its own; it is shown finite examples only.

    Of the others nothing is known: all classes are alike. `trusted` says who answers, the adapter or the source model.
    """

    def __init__(self, inner: Adapter) -> None:
        super().__init__(inner.net)
        self.inner, self.source, self.trusted = inner, Source(inner), True

    @abstractmethod
    def answer(self, x: Tensor) -> Tensor:
        """Adapt to finite examples and predict them."""

    @abstractmethod
    def learn(self, x: Tensor) -> Tensor:
        """Adapt to them; what is returned is not looked at."""

    @abstractmethod
    def go_back(self) -> None:
        """Put the adapter inside back: it is not finite, or does harm."""

    def only_predict(self, x: Tensor) -> Tensor:
        """Predict them."""
        adapted = self.inner.predict(x) if self.trusted else None
        return self.source(x) if adapted is None or not adapted.isfinite().all() else adapted

    def sound(self, adapted: Tensor) -> bool:
        """Whether the adapter inside and its answers are finite; if not, it goes back."""
        if adapted.isfinite().all() and trees.finite(self.inner.state()):
            return True
        self.go_back()
        return False

    def forward(self, x: Tensor) -> Tensor:
        return self._of_finite(x, self.answer)

    def adapt(self, x: Tensor) -> None:
        self._of_finite(x, self.learn)

    def predict(self, x: Tensor) -> Tensor:
        return self._of_finite(x, self.only_predict)

    def _of_finite(self, x: Tensor, do: Callable[[Tensor], Tensor]) -> Tensor:
        self.figures, self.inner.figures = {}, {}
        whole = x.isfinite().flatten(1).all(1)
        if whole.all():
            found = do(x)
        else:
            found = torch.zeros_like(self.source(torch.zeros_like(x)))
            if whole.any():
                found[whole] = do(x[whole])
        self.figures = {**self.inner.figures, **self.figures, "stepped_in": ~whole.all() | (not self.trusted)}
        return torch.where(found.isfinite().all(-1, keepdim=True), found, 0.0)

    def moving(self) -> Params:
        return self.inner.moving()

    def shared(self) -> Params:
        return self.inner.shared()

    def load_shared(self, shared: Mapping[str, Tensor]) -> None:
        self.inner.load_shared(shared)

    def expects(self, classes: int) -> Params:
        return self.inner.expects(classes)

    def limits(self) -> Limits:
        return self.inner.limits()
