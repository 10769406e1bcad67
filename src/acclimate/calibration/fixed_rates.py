"""Rates chosen by hand for some of ATP's modules: what its Figures 3 and 9 try (Bao et al., NeurIPS 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

import torch

from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.errors import ConfigError
from acclimate.models.modules import Modules
from acclimate.params import Params


@dataclass(frozen=True)
class FixedRates(Algorithm[Params, None]):
    """One rate for the modules whose names are like one of `modules` (`bn*.weight`), zero for all others.

    Nothing is learnt, so clients have nothing to do, and one round is enough. A negative rate of a running statistic
    moves it away from the batch.
    """

    exports = ("rates",)

    rate: float = 0.1  # α of the chosen modules
    modules: tuple[str, ...] = ("*",)

    def init(self, task: Task) -> Params:
        tensors = Modules(task.build(None)).tensors
        for pattern in self.modules:
            if not any(fnmatchcase(name, pattern) for name in tensors):
                there = ", ".join(tensors)
                raise ConfigError([f"fixed-rates.modules: expected names like these: {there}; found '{pattern}'"])
        chosen = {name for name in tensors if any(fnmatchcase(name, pattern) for pattern in self.modules)}
        return {name: torch.tensor(self.rate * (name in chosen), dtype=t.dtype) for name, t in tensors.items()}

    def client_update(self, rates: Params, state: None, client: Client) -> tuple[Reply, None]:
        return Reply(rates), None

    def server_update(self, rates: Params, replies: Replies) -> Params:
        return rates

    def export(self, rates: Params, state: None, client: int) -> Knowledge:
        return {"rates": rates}
