"""MEMO: marginal entropy minimisation with one test point (Zhang et al., NeurIPS 2022)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from acclimate import params
from acclimate.contracts import Adapter
from acclimate.data.augment import crops, mirrored
from acclimate.options import Count, Positive
from acclimate.params import Params

Padding = Literal["mirror", "black"]


class MEMO(Adapter):
    """Move all parameters down the entropy of the mean prediction over copies of one image, then predict that image.

    As in ATP's comparison: one step from the source model for each image alone, batch norms with the source's
    statistics, and copies that are random crops of the padded image, flipped half of the time, instead of AugMix.
    The image goes on as in a mirror around it, or, with `padding: black`, in black. BTFL's comparison takes three
    `steps`, each on copies of its own. Nothing is carried over.
    """

    revision: ClassVar[int] = 1  # crops were padded with black

    def __init__(
        self,
        net: nn.Module,
        *,
        lr: Positive = 0.005,
        copies: Count = 16,
        margin: Count = 4,  # pixels that an image is padded by on each side
        padding: Padding = "mirror",
        flip: bool = True,
        steps: Count = 1,
    ) -> None:
        super().__init__(net.requires_grad_(True))
        self.lr, self.copies, self.margin, self.padding, self.flip = lr, copies, margin, padding, flip
        self.steps = steps

    def predict(self, x: Tensor) -> Tensor:
        padded = mirrored(x, self.margin) if self.padding == "mirror" else F.pad(x, [self.margin] * 4)
        logits = []
        for image, around in zip(x, padded, strict=True):
            same = around.expand(self.copies, *around.shape)
            drawn = (crops(same, x.shape[-2:], self.flip) for _ in range(self.steps))
            logits.append(after_steps(self.net, image, drawn, self.lr))
        return torch.stack(logits)


def after_steps(net: nn.Module, image: Tensor, copies: Iterable[Tensor], lr: float) -> Tensor:
    """Logits of one image after an SGD step on each of its sets of copies; the model itself is left as it was."""
    tensors: Params = dict(net.named_parameters())
    for batch in copies:
        with torch.enable_grad():
            loss = marginal_entropy(functional_call(net, tensors, (batch,)))
        gradients = params.gradients(loss, tensors)
        with torch.no_grad():
            moved = params.add(tensors, gradients, -lr)
        tensors = {name: tensor.requires_grad_() for name, tensor in moved.items()}
    with torch.no_grad():
        logits: Tensor = functional_call(net, tensors, (image.unsqueeze(0),))
    return logits.squeeze(0)


def marginal_entropy(logits: Tensor) -> Tensor:
    """The entropy of the mean prediction, in nats: eq. (2) of the mean of eq. (1).

    >>> round(float(marginal_entropy(torch.tensor([[20.0, 0.0], [0.0, 20.0]]))), 4)  # sure, but of different classes
    0.6931
    """
    log_p = logits.log_softmax(-1).logsumexp(0) - math.log(len(logits))
    return -(log_p.exp() * log_p).sum()
