"""What clients add to their loss: in training, and in the inner steps of adapters (option `term`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.models.head import features
from acclimate.options import NonNegative, Positive


@dataclass(frozen=True)
class Proximal:
    """FedProx (Li et al., MLSys 2020): μ/2 · ‖w − w_anchor‖² over the trainable tensors."""

    mu: NonNegative = 0.01  # μ

    def __call__(
        self, net: nn.Module, x: Tensor, anchor: Mapping[str, Tensor], previous: Mapping[str, Tensor] | None
    ) -> Tensor:
        moved = [
            (tensor - anchor[name]).square().sum() for name, tensor in net.named_parameters() if tensor.requires_grad
        ]
        return 0.5 * self.mu * torch.stack(moved).sum()  # eq. (2)


@dataclass(frozen=True)
class Contrast:
    """MOON (Li et al., CVPR 2021): features like the anchor's rather than like those of the model sent last.

    The features are what enters the head; there is no projection head. Before anything was sent there is nothing to
    differ from, and the term is zero.
    """

    mu: NonNegative = 1.0  # μ
    temperature: Positive = 0.5  # τ

    def __call__(
        self, net: nn.Module, x: Tensor, anchor: Mapping[str, Tensor], previous: Mapping[str, Tensor] | None
    ) -> Tensor:
        if previous is None:
            return x.new_zeros(())
        z = features(net, x)[0].flatten(1)
        with looking_back(net):
            z_glob, z_prev = (features(net, x, given=old)[0].flatten(1) for old in (anchor, previous))
        similar = torch.stack([F.cosine_similarity(z, other) for other in (z_glob, z_prev)], 1) / self.temperature
        return -self.mu * similar.log_softmax(1)[:, 0].mean()  # eq. (3)


@dataclass(frozen=True)
class SelfDistillation:
    """pFedSD (Jin et al., TPDS 2022): predictions like those of the model sent last, softened by τ.

    τ² keeps the gradient's size whatever τ. Before anything was sent there is no teacher, and the term is zero.
    """

    mu: NonNegative = 0.5  # λ
    temperature: Positive = 3.0  # τ

    def __call__(
        self, net: nn.Module, x: Tensor, anchor: Mapping[str, Tensor], previous: Mapping[str, Tensor] | None
    ) -> Tensor:
        if previous is None:
            return x.new_zeros(())
        with looking_back(net):
            teacher = features(net, x, given=previous)[1].div(self.temperature).log_softmax(-1)
        student = net(x).div(self.temperature).log_softmax(-1)
        divergence = F.kl_div(student, teacher, reduction="batchmean", log_target=True)  # KL(previous ‖ current)
        return self.mu * self.temperature**2 * divergence


@contextmanager
def looking_back(net: nn.Module) -> Iterator[None]:
    """Without gradients, and in eval mode: an older model's batch statistics must not move."""
    training = net.training
    net.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        net.train(training)
