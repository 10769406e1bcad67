"""Telling how an image was turned: a task that needs no labels, for TTT."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.errors import UnsupportedModel
from acclimate.models.head import features, head_of


def rotation_head(net: nn.Module) -> nn.Linear:
    """A head for the four turns, on the features that enter a model's own."""
    head = head_of(net)[1]
    return nn.Linear(head.in_features, 4, dtype=head.weight.dtype)


def rotations(x: Tensor) -> tuple[Tensor, Tensor]:
    """Every image turned by 0, 90, 180 and 270 degrees [4 B, C, H, W], and which turn it is.

    >>> rotations(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]))[0][1]
    tensor([[[2., 4.],
             [1., 3.]]])
    """
    if x.shape[-1] != x.shape[-2]:
        raise UnsupportedModel(f"turning needs square images, found {x.shape[-2]}x{x.shape[-1]}; use another method")
    turned = torch.cat([x.rot90(turn, (2, 3)) for turn in range(4)])
    return turned, torch.arange(4).repeat_interleave(len(x))


def turned_once(x: Tensor) -> tuple[Tensor, Tensor]:
    """Every image turned by one of the four, drawn for each [B, C, H, W], and which turn it is."""
    turned, labels = rotations(x)
    drawn = torch.randint(4, (len(x),))
    chosen = drawn * len(x) + torch.arange(len(x))
    return turned[chosen], labels[chosen]


def rotation_loss(net: nn.Module, head: nn.Module, x: Tensor, once: bool = False) -> Tensor:
    """How badly a head tells the turns of a batch: all four of each image, or one that is drawn for it."""
    turned, labels = turned_once(x) if once else rotations(x)
    return F.cross_entropy(head(features(net, turned)[0]), labels)
