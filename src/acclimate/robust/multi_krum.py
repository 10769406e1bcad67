"""Multi-Krum: the mean of the m that Krum likes best (Blanchard et al., NeurIPS 2017, §5)."""

from __future__ import annotations

from dataclasses import dataclass

from acclimate.options import Count
from acclimate.robust.krum import Krum
from acclimate.robust.rule import hostile


@dataclass(frozen=True)
class MultiKrum(Krum):
    """The m best count as they are, the f worst are set aside; by default these are all clients (m = K − f)."""

    best: Count | None = None  # m

    def chosen(self, clients: int) -> int:
        return min(self.best or clients, clients - hostile(self.share, clients))
