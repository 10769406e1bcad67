"""A client's pass over labelled batches that moves adaptation rates (Bao et al., NeurIPS 2023, Algorithm 1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from acclimate.models.modules import Modules
from acclimate.options import NonNegative, Positive
from acclimate.params import Params


@dataclass(frozen=True)
class RateSteps:
    """Simulate unsupervised adaptation on each batch, and move the rates α to make it help."""

    lr: Positive = 0.1  # η
    unbiased: bool = True
    floor: NonNegative = 0.0  # of variances
    divide: Literal["sqrt", "numel"] = "sqrt"

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (a misspelt key in an experiment is an error)

    def learn(
        self,
        modules: Modules,
        rates: Mapping[str, Tensor],
        batches: Iterable[tuple[Tensor, Tensor]],
        noted: MutableMapping[int, Params] | None = None,
    ) -> tuple[Params, float]:
        """The rates after these batches, and the mean loss over their images; the modules are left where it ended.

        `noted` holds the directions h of batches by number: where model and batches stay the same from round to round,
        so do they.
        """
        power, noted = 0.5 if self.divide == "sqrt" else 1.0, {} if noted is None else noted
        alpha, total, seen = dict(rates), 0.0, 0
        for number, (x, y) in enumerate(batches):
            modules.restore()
            if number not in noted:
                noted[number] = modules.directions(x, self.unbiased)
            h = noted[number]
            modules.move(alpha, h, self.floor)
            gradient, loss = modules.gradients(x, y)
            for name in alpha:  # α ← α − η ⟨h, ∇CE⟩ / √numel, eq. (7)
                step = (h[name] * gradient[name]).sum() / h[name].numel() ** power
                alpha[name] = alpha[name] - self.lr * step
            total, seen = total + loss * len(y), seen + len(y)
        return alpha, total / max(seen, 1)
