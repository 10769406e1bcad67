"""The ConvNets of FedTTA (Ye et al., SDM 2024), one for each kind of device."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.errors import UnsupportedModel
from acclimate.options import Count

CHANNELS = {"small": (16, 32), "medium": (32, 64), "big": (64, 128)}


class FedTTACNN(nn.Module):
    """Two padded 5x5 convolutions, each with ReLU and pooling, and two linear layers; no norms.

    2,156,490 parameters on 3x32x32 images and 10 classes (4096-512-10); FEMNIST has `hidden: 2048`.
    `width` sets the channels for heterogeneous devices; `normalised: never` takes images as they are, in [0, 1]. Images
    need at least 4 pixels a side.
    """

    def __init__(
        self,
        classes: int,
        shape: tuple[int, int, int],
        normalise: nn.Module,
        *,
        hidden: Count = 512,
        width: Literal["small", "medium", "big"] = "medium",
        normalised: Literal["always", "never"] = "always",
    ) -> None:
        super().__init__()
        channels, rows, columns = shape
        if min(rows, columns) < 4:
            raise UnsupportedModel(f"fedtta-cnn needs images of at least 4x4 pixels, found {rows}x{columns}")
        first, second = CHANNELS[width]
        self.normalise = normalise if normalised == "always" else nn.Identity()
        self.conv1 = nn.Conv2d(channels, first, 5, padding=2)
        self.conv2 = nn.Conv2d(first, second, 5, padding=2)
        self.hidden = nn.Linear(second * (rows // 4) * (columns // 4), hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(self.normalise(x))), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        logits: Tensor = self.head(F.relu(self.hidden(x.flatten(1))))
        return logits
