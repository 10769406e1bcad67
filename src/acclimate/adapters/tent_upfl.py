"""TENT as FedTTA's comparison has it: one entropy step on everything (Ye et al., SDM 2024, §4.1)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from acclimate import params
from acclimate.contracts import Adapter
from acclimate.losses import entropy
from acclimate.options import Count, NonNegative, Positive
from acclimate.params import Params


class TentUPFL(Adapter):
    """Step all parameters once down the entropy, in bits, of all of a client's images; then predict them.

    Entropy in bits makes the rate 1.44 times what it is for Tent (E20). Weight decay and the bound on the gradient are
    the released code's. The paper takes FedAvg's rate; the mean is over images, in eval mode.
    """

    def __init__(
        self,
        net: nn.Module,
        *,
        lr: Positive = 0.1,
        weight_decay: NonNegative = 1e-4,
        clip: Positive | None = 10.0,
        batch_size: Count = 64,
    ) -> None:
        super().__init__(net.requires_grad_(True))
        self.lr, self.weight_decay, self.clip, self.batch_size = lr, weight_decay, clip, batch_size
        self.trained: Params = dict(net.named_parameters())

    def moving(self) -> Params:
        return self.trained

    def adapt(self, x: Tensor) -> None:
        with torch.enable_grad():
            loss = entropy(torch.cat([self.net(batch) for batch in x.split(self.batch_size)])).mean() / math.log(2)
        params.descend(loss, self.trained, self.lr, self.weight_decay, self.clip)
