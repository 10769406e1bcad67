"""ResNeXt-29 for CIFAR (Xie et al., CVPR 2017), in the size of AugMix (Hendrycks et al., ICLR 2020)."""

from __future__ import annotations

from functools import partial

from torch import nn

from acclimate.models.resnet import Bottleneck, ResNet
from acclimate.options import Count


def resnext29(
    classes: int,
    shape: tuple[int, int, int],
    normalise: nn.Module,
    *,
    cardinality: Count = 4,
    base_width: Count = 32,
) -> ResNet:
    """Nine bottleneck blocks whose 3x3 convolution has `cardinality` groups; 1024 features before the head.

    6,807,882 parameters on 3 channels and 10 classes, 6,900,132 on 100. A group has `base_width` channels in
    the first stage, twice and four times as many in the others. The layers have the names of ResNet, so
    AugMix's own weights have to be renamed.
    """
    block = partial(Bottleneck, groups=cardinality, group_width=base_width)
    return ResNet(classes, shape, normalise, block=block, depths=(3, 3, 3), stem="cifar")
