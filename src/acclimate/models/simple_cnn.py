"""The simple CNN of BTFL and FedICON: two 5x5 convolutions and 1600-64-10 on CIFAR-10."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.errors import UnsupportedModel


class SimpleCNN(nn.Module):
    """Two 5x5 convolutions, each with pooling and ReLU, and two linear layers.

    Without biases, as in BTFL, 156,640 parameters on 3x32x32 images and 10 classes; FedICON has `bias: true`,
    and FedBN's variant has `batch_norm: true`, a norm after each convolution. Features before the head are
    never negative. Images need at least 16 pixels a side.
    """

    def __init__(
        self,
        classes: int,
        shape: tuple[int, int, int],
        normalise: nn.Module,
        *,
        bias: bool = False,
        batch_norm: bool = False,
    ) -> None:
        super().__init__()
        channels, height, width = shape
        if min(height, width) < 16:
            raise UnsupportedModel(f"simple-cnn needs images of at least 16x16 pixels, found {height}x{width}")
        self.normalise = normalise
        self.conv1 = nn.Conv2d(channels, 32, 5, bias=bias)
        self.bn1 = nn.BatchNorm2d(32) if batch_norm else nn.Identity()
        self.conv2 = nn.Conv2d(32, 64, 5, bias=bias)
        self.bn2 = nn.BatchNorm2d(64) if batch_norm else nn.Identity()
        self.hidden = nn.Linear(64 * _left(height) * _left(width), 64, bias=bias)
        self.head = nn.Linear(64, classes, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        # The largest of four and what is above zero, in either order: the same bits, forward and backward, and a
        # training step is a tenth shorter if the smaller tensor goes through the ReLU.
        x = F.relu(F.max_pool2d(self.bn1(self.conv1(self.normalise(x))), 2))
        x = F.relu(F.max_pool2d(self.bn2(self.conv2(x)), 2))
        logits: Tensor = self.head(F.relu(self.hidden(x.flatten(1))))
        return logits


def _left(side: int) -> int:
    """Pixels a side after the convolutions: 32 → 28 → 14 → 10 → 5."""
    return ((side - 4) // 2 - 4) // 2
