"""Wide residual networks for CIFAR (Zagoruyko & Komodakis, BMVC 2016): norm and ReLU before each convolution."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.errors import UnsupportedModel
from acclimate.models.resnet import conv, initialise
from acclimate.options import Count


class WideBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut, each after its norm and ReLU."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), conv(inputs, width, 3, stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(width), conv(width, width, 3)
        self.shortcut = None if inputs == width and stride == 1 else conv(inputs, width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        active = F.relu(self.bn1(x))
        y: Tensor = self.conv2(F.relu(self.bn2(self.conv1(active))))
        return y + (x if self.shortcut is None else self.shortcut(active))


class WideResNet(nn.Module):
    """WRN-depth-width: three stages of (depth − 4) / 6 blocks with `width` times 16, 32 and 64 channels.

    On 3 channels and 10 classes the default WRN-16-2, small enough for a CPU, has 691,674 parameters, and the
    paper's WRN-28-10 36,479,194. No dropout. Features before the head are never negative. Images need at
    least 3 pixels a side.
    """

    def __init__(
        self,
        classes: int,
        shape: tuple[int, int, int],
        normalise: nn.Module,
        *,
        depth: Count = 16,
        width: Count = 2,
    ) -> None:
        super().__init__()
        channels, rows, columns = shape
        if depth < 10 or (depth - 4) % 6:
            raise UnsupportedModel(f"wide-resnet needs a depth of 10, 16, 22, 28 and so on, found {depth}")
        if min(rows, columns) < 3:
            raise UnsupportedModel(f"wide-resnet needs images of at least 3x3 pixels, found {rows}x{columns}")
        self.normalise = normalise
        self.conv1 = conv(channels, 16, 3)
        self.layer1 = _stage(16, 16 * width, (depth - 4) // 6, stride=1)
        self.layer2 = _stage(16 * width, 32 * width, (depth - 4) // 6, stride=2)
        self.layer3 = _stage(32 * width, 64 * width, (depth - 4) // 6, stride=2)
        self.bn = nn.BatchNorm2d(64 * width)
        self.fc = nn.Linear(64 * width, classes)
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer3(self.layer2(self.layer1(self.conv1(self.normalise(x)))))
        logits: Tensor = self.fc(F.relu(self.bn(x)).mean((2, 3)))
        return logits


def _stage(inputs: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    rest = [WideBlock(width, width, 1) for _ in range(blocks - 1)]
    return nn.Sequential(WideBlock(inputs, width, stride), *rest)
