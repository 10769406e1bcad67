"""The five-layer CNN of ATP (Bao et al., NeurIPS 2023)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.errors import UnsupportedModel


class ShallowCNN(nn.Module):
    """Three 3x3 convolutions without bias and two linear layers, each but the last with BN and ReLU.

    122,858 parameters on 3x32x32 images and 10 classes; images need at least 18 pixels a side.
    """

    def __init__(self, classes: int, shape: tuple[int, int, int], normalise: nn.Module) -> None:
        super().__init__()
        channels, height, width = shape
        if min(height, width) < 18:
            raise UnsupportedModel(f"shallow-cnn needs images of at least 18x18 pixels, found {height}x{width}")
        self.normalise = normalise
        self.conv1, self.bn1 = nn.Conv2d(channels, 32, 3, bias=False), nn.BatchNorm2d(32)
        self.conv2, self.bn2 = nn.Conv2d(32, 64, 3, bias=False), nn.BatchNorm2d(64)
        self.conv3, self.bn3 = nn.Conv2d(64, 64, 3, bias=False), nn.BatchNorm2d(64)
        self.linear4, self.bn4 = nn.Linear(64 * _left(height) * _left(width), 64), nn.BatchNorm1d(64)
        self.linear5 = nn.Linear(64, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(self.normalise(x)))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        x = F.relu(self.bn3(self.conv3(x)))
        x = F.relu(self.bn4(self.linear4(x.flatten(1))))
        logits: Tensor = self.linear5(x)
        return logits


def _left(side: int) -> int:
    """Pixels a side after the convolutions: 32 → 30 → 15 → 13 → 6 → 4."""
    return ((side - 2) // 2 - 2) // 2 - 2
