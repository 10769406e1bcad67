"""EATA: efficient anti-forgetting test-time adaptation (Niu et al., ICML 2022)."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate import params
from acclimate.adapters.tent import Tent
from acclimate.errors import MissingKnowledge
from acclimate.losses import entropy
from acclimate.models.norms import norm_layers
from acclimate.options import Count, Decay, NonNegative, Positive
from acclimate.params import Params
from acclimate.trees import Nest


class EATA(Tent):
    """Tent on reliable images that say something new, held near the source where the source's predictions need it.

    As in the released code, the loss is a mean over the images that pass both filters, the moving average is of these
    too, and without any there is no step. The defaults are the paper's for CIFAR-10; for ImageNet it sets
    `redundancy` to 0.05, which with few classes lets almost nothing pass after the first batch.
    """

    needs = ("fisher",)

    def __init__(
        self,
        net: nn.Module,
        *,
        fisher: Params,
        lr: Positive = 0.005,
        steps: Count = 1,
        optimizer: Literal["adam", "sgd"] = "sgd",
        momentum: Decay = 0.9,
        margin: Positive = 0.4,
        redundancy: Positive = 0.4,
        weighted: bool = True,
        fisher_weight: NonNegative = 1.0,
    ) -> None:
        norm_layers(net, "eata")  # for an error in EATA's name
        super().__init__(net, lr=lr, steps=steps, optimizer=optimizer, momentum=momentum)
        if fisher.keys() != self.trained.keys():
            raise MissingKnowledge(
                f"'fisher' is of other parameters than {type(net).__name__} has; learn it on this model"
            )
        self.margin, self.redundancy, self.weighted = margin, redundancy, weighted
        self.beta = fisher_weight  # β
        self.fisher = {name: fisher[name].to(tensor.dtype) for name, tensor in self.trained.items()}  # ω
        self.source = {name: params.copy(tensor) for name, tensor in self.trained.items()}  # θ°
        self.mean: Tensor | None = None  # m^t: moving average of the predictions learnt from

    def loss(self, logits: Tensor) -> Tensor | None:
        """Eq. (8), or None if no image passes the filters; remembers the predictions of those that do."""
        p, h = logits.detach().softmax(-1), entropy(logits)
        e_0 = self.margin * math.log(logits.shape[-1])  # E_0
        active = h.detach() < e_0  # eq. (3)
        if self.mean is not None:
            active &= F.cosine_similarity(p, self.mean.unsqueeze(0)) < self.redundancy  # eq. (5)
        if not active.any():
            return None
        new = p[active].mean(0)
        self.mean = new if self.mean is None else 0.9 * self.mean + 0.1 * new  # eq. (4)
        weights = (e_0 - h.detach()).exp() if self.weighted else torch.ones_like(h)  # 1 / exp(E(x) − E_0), eq. (3)
        loss = (weights * h)[active].mean()
        if self.beta > 0:
            loss = loss + self.beta * self._distance()
        return loss

    def _distance(self) -> Tensor:
        """R = Σ_i ω(θ_i) (θ_i − θ°_i)², in eq. (8)."""
        parts = [(self.fisher[n] * (tensor - self.source[n]).square()).sum() for n, tensor in self.trained.items()]
        return torch.stack(parts).sum()

    def state(self) -> Nest:
        return {**super().state(), "mean": None if self.mean is None else self.mean.clone()}

    def load_state(self, state: Nest) -> None:
        super().load_state(state)
        self.mean = None if state["mean"] is None else state["mean"].clone()
