"""ATP: learning one adaptation rate per module on the source clients (Bao et al., NeurIPS 2023, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.models.modules import Kinds, Modules
from acclimate.options import Count, NonNegative, Positive
from acclimate.params import Params
from acclimate.rates import RateSteps


@dataclass(frozen=True)
class ATP(Algorithm[Params, None]):
    """Simulate unsupervised adaptation on labelled validation batches and move the rates α to make it help.

    The model stays frozen and is known to the clients, so only the rates travel: 2 d numbers a round. No second-order
    terms: h is a constant for α, also where a variance was clamped (straight-through). Where paper and code differ, the
    defaults are the code's: the validation split (D1), one pass (D2), in a fixed order (D3), unbiased variances (D4),
    variances clamped at zero (D5), steps divided by √numel, for the ablations too (D11).
    """

    exports = ("rates",)

    lr: Positive = 0.1  # η
    batch_size: Count = 20  # B
    epochs: Count = 1  # E
    shuffle: bool = False
    modules: Kinds = "all"  # params, stats: the ablations of Table 4
    unbiased: bool = True
    floor: NonNegative = 0.0
    divide: Literal["sqrt", "numel"] = "sqrt"

    def init(self, task: Task) -> Params:
        names = Modules(task.build(None), self.modules).tensors
        return {name: torch.zeros((), dtype=tensor.dtype) for name, tensor in names.items()}  # α = 0

    def client_update(self, rates: Params, state: None, client: Client) -> tuple[Reply, None]:
        modules = Modules(client.net(client.known["model"]), self.modules)  # w_G
        steps = RateSteps(self.lr, self.unbiased, self.floor, self.divide)
        order = client.rng if self.shuffle else None
        # In a fixed order a frozen model meets the same batches again: their h are worth noting.
        noted = None if self.shuffle else client.notes
        alpha, total = rates, 0.0
        for _ in range(self.epochs):
            alpha, loss = steps.learn(modules, alpha, client.validation.batches(self.batch_size, order), noted)
            total += loss
        return Reply(alpha, metrics={"loss": total / self.epochs}), None

    def server_update(self, rates: Params, replies: Replies) -> Params:
        mean: Params = replies.mean()  # unweighted
        return mean

    def export(self, rates: Params, state: None, client: int) -> Knowledge:
        return {"rates": rates}
