"""The multi-layer perceptron of FedAvg and FedTTA: 784-200-200-10 on MNIST."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from torch import Tensor, nn

from acclimate.options import Count


class MLP(nn.Module):
    """Fully connected layers with ReLU between them (199,210 parameters on 1x28x28 and 10 classes).

    `normalised: never` takes images as they are, in [0, 1].
    """

    def __init__(
        self,
        classes: int,
        shape: tuple[int, int, int],
        normalise: nn.Module,
        hidden: Sequence[Count] = (200, 200),
        normalised: Literal["always", "never"] = "always",
    ) -> None:
        super().__init__()
        sizes = [math.prod(shape), *hidden]
        layers = [layer for a, b in pairwise(sizes) for layer in (nn.Linear(a, b), nn.ReLU())]
        self.normalise = normalise if normalised == "always" else nn.Identity()
        self.body = nn.Sequential(nn.Flatten(), *layers)
        self.head = nn.Linear(sizes[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.body(self.normalise(x)))
        return logits
