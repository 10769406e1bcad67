"""The coordinate-wise median (Yin et al., ICML 2018, Definition 1)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from acclimate.robust.rule import Stateless, median


@dataclass(frozen=True)
class Median(Stateless):
    """Everybody counts as the median of each number, so that every mean over them is the median."""

    def change(self, many: Tensor) -> Tensor:
        return median(many).expand_as(many)  # g_k = med{x_k^i : i}
