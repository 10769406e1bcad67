"""Residual networks (He et al., CVPR 2016): ResNet-8 of TSA, ResNet-18 and -50, and ResNet-20 with group norms.

The layers have torchvision's names, so its weights fit ResNet-18 and -50. All have ReLU before the average
pool, so features are never negative, and He's initialisation of convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.errors import UnsupportedModel
from acclimate.models.normalise import OnlyInTraining
from acclimate.options import Count

Stem = Literal["imagenet", "cifar"]
Norm = Callable[[int], nn.Module]


class GroupNorm(nn.GroupNorm):
    """Torch's, kept from crashing (2.13, CPU): on channels-last images it cannot train its scale and shift alone."""

    def forward(self, input: Tensor) -> Tensor:
        # The backward pass writes the gradient of a channels-last input even where nobody asked for it.
        return super().forward(input.contiguous() if torch.is_grad_enabled() else input)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int, norm: Norm = nn.BatchNorm2d) -> None:
        super().__init__()
        self.outputs = width
        self.conv1, self.bn1 = conv(inputs, width, 3, stride), norm(width)
        self.conv2, self.bn2 = conv(width, width, 3), norm(width)
        self.downsample = shortcut(inputs, self.outputs, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Bottleneck(nn.Module):
    """A 3x3 convolution, in ResNeXt split into groups, between two 1x1 ones, beside a shortcut."""

    def __init__(
        self,
        inputs: int,
        width: int,
        stride: int,
        norm: Norm = nn.BatchNorm2d,
        *,
        groups: int = 1,
        group_width: int = 64,
    ) -> None:
        super().__init__()
        self.outputs = 4 * width
        inner = width * group_width // 64 * groups
        self.conv1, self.bn1 = conv(inputs, inner, 1), norm(inner)
        self.conv2, self.bn2 = conv(inner, inner, 3, stride, groups), norm(inner)
        self.conv3, self.bn3 = conv(inner, self.outputs, 1), norm(self.outputs)
        self.downsample = shortcut(inputs, self.outputs, stride, norm)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.downsample(x))


class ResNet(nn.Module):
    """A stem, stages of blocks that halve the image and double the width, a global average pool and a head."""

    def __init__(
        self,
        classes: int,
        shape: tuple[int, int, int],
        normalise: nn.Module,
        *,
        block: Callable[[int, int, int, Norm], BasicBlock | Bottleneck],
        depths: Sequence[int],
        width: int = 64,
        stem: Stem = "imagenet",
        norm: Norm = nn.BatchNorm2d,
    ) -> None:
        super().__init__()
        channels, rows, columns = shape
        stride = 2 ** (len(depths) - 1) * (4 if stem == "imagenet" else 1)
        smallest = stride // 2 + 1  # so that the last stage still has two pixels to halve
        if min(rows, columns) < smallest:
            hint = "; for small images use stem: cifar" if stem == "imagenet" else ""
            raise UnsupportedModel(
                f"a ResNet of {len(depths)} stages with the {stem} stem needs images of at least "
                f"{smallest}x{smallest} pixels, found {rows}x{columns}{hint}"
            )
        self.normalise = normalise
        self.conv1 = conv(channels, width, 7, 2) if stem == "imagenet" else conv(channels, width, 3)
        self.bn1 = norm(width)
        self.maxpool = nn.MaxPool2d(3, 2, 1) if stem == "imagenet" else nn.Identity()
        self.stages = [f"layer{i + 1}" for i in range(len(depths))]
        inputs = width
        for i, (name, depth) in enumerate(zip(self.stages, depths, strict=True)):
            stage = nn.Sequential()
            for j in range(depth):
                made = block(inputs, width * 2**i, 2 if i > 0 and j == 0 else 1, norm)
                stage.append(made)
                inputs = made.outputs
            self.add_module(name, stage)
        self.fc = nn.Linear(inputs, classes)
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(F.relu(self.bn1(self.conv1(self.normalise(x)))))
        for name in self.stages:
            x = self.get_submodule(name)(x)
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


def resnet8(
    classes: int,
    shape: tuple[int, int, int],
    normalise: nn.Module,
    *,
    stem: Stem = "imagenet",
    normalised: Literal["always", "training"] = "always",
) -> ResNet:
    """TSA's ResNet-8: three basic blocks of 64, 128 and 256 channels.

    1,235,274 parameters on 3 channels and 10 classes. `stem`: as TSA's code has it, a 7x7 convolution and a
    pool that leave a quarter of each side, or for small images a 3x3 convolution that leaves all. TSA's code tests on
    images as they are; with `normalised: training` so does this, although it is trained on normalised ones.
    """
    if normalised == "training":
        normalise = OnlyInTraining(normalise)
    return ResNet(classes, shape, normalise, block=BasicBlock, depths=(1, 1, 1), stem=stem)


def resnet18(classes: int, shape: tuple[int, int, int], normalise: nn.Module, *, stem: Stem = "imagenet") -> ResNet:
    """ResNet-18: 11,689,512 parameters on 3 channels and 1000 classes; `stem: cifar` for images of some 32 pixels."""
    return ResNet(classes, shape, normalise, block=BasicBlock, depths=(2, 2, 2, 2), stem=stem)


def resnet50(classes: int, shape: tuple[int, int, int], normalise: nn.Module, *, stem: Stem = "imagenet") -> ResNet:
    """ResNet-50: 25,557,032 parameters on 3 channels and 1000 classes; `stem: cifar` for images of some 32 pixels.

    As in torchvision, the 3x3 convolution of a block has the stride, not the first 1x1 one of the paper.
    """
    return ResNet(classes, shape, normalise, block=Bottleneck, depths=(3, 4, 6, 3), stem=stem)


def resnet20_gn(
    classes: int, shape: tuple[int, int, int], normalise: nn.Module, *, groups: Count = 2, width: Count = 1
) -> ResNet:
    """ResNet-20 for CIFAR with group norms (BTFL): nine basic blocks of `width` times 16, 32 and 64 channels.

    272,474 parameters on 3 channels and 10 classes. Shortcuts that change the shape are 1x1 convolutions with
    a norm, where He et al. pad with zeros.
    """
    if 16 * width % groups:
        raise UnsupportedModel(f"resnet20-gn needs groups that divide its {16 * width} channels, found {groups}")
    norm = partial(GroupNorm, groups)
    return ResNet(
        classes, shape, normalise, block=BasicBlock, depths=(3, 3, 3), width=16 * width, stem="cifar", norm=norm
    )


def conv(inputs: int, outputs: int, side: int, stride: int = 1, groups: int = 1) -> nn.Conv2d:
    """A convolution without bias that keeps the image's size, up to its stride."""
    return nn.Conv2d(inputs, outputs, side, stride, padding=side // 2, groups=groups, bias=False)


def shortcut(inputs: int, outputs: int, stride: int, norm: Norm) -> nn.Module:
    """The identity where the shape stays, else a 1x1 convolution and a norm."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(conv(inputs, outputs, 1, stride), norm(outputs))


def initialise(net: nn.Module) -> None:
    """He's initialisation (ICCV 2015) of convolutions: normal with variance 2 / (side² · outputs)."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
