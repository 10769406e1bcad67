"""The only local SGD loop."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.examples import Examples
from acclimate.losses import Term
from acclimate.options import Count, Decay, NonNegative, Positive


class Fit(NamedTuple):
    """What came of local training."""

    loss: float  # mean over all examples seen, terms included
    steps: int


@dataclass(frozen=True)
class LocalSGD:
    """Plain SGD over a client's shuffled examples, one pass per epoch."""

    lr: Positive = 0.1
    epochs: Count = 1
    batch_size: Count = 20
    momentum: Decay = 0.0
    weight_decay: NonNegative = 0.0

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (a misspelt key in an experiment is an error)

    def fit(
        self,
        net: nn.Module,
        examples: Examples,
        rng: torch.Generator,
        *,
        term: Term | None = None,
        anchor: Mapping[str, Tensor] | None = None,
        previous: Mapping[str, Tensor] | None = None,
        correction: Mapping[str, Tensor] | None = None,
    ) -> Fit:
        """Minimise cross-entropy (+ `term`), adding `correction` to the gradients, on the trainable tensors."""
        net.train()
        trainable = {name: tensor for name, tensor in net.named_parameters() if tensor.requires_grad}
        optimizer = torch.optim.SGD(
            trainable.values(), lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay
        )
        total, seen, steps = 0.0, 0, 0
        for _ in range(self.epochs):
            for x, y in examples.batches(self.batch_size, rng):
                loss = F.cross_entropy(net(x), y)
                if term is not None:
                    loss = loss + term(net, x, anchor or {}, previous)
                optimizer.zero_grad()
                loss.backward()
                if correction is not None:
                    for name, tensor in trainable.items():
                        if tensor.grad is not None:
                            tensor.grad.add_(correction[name])
                optimizer.step()
                total, seen, steps = total + loss.item() * len(y), seen + len(y), steps + 1
        return Fit(total / max(seen, 1), steps)
