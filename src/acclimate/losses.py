"""Losses without labels, and the terms that clients add to theirs (for training and for inner steps alike)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from acclimate.options import NonNegative


def entropy(logits: Tensor) -> Tensor:
    """H(softmax(logits)) of each row, in nats.

    >>> round(float(entropy(torch.zeros(1, 4))), 4)  # uniform over four classes: ln 4
    1.3863
    """
    log_p = logits.log_softmax(-1)
    return -(log_p.exp() * log_p).sum(-1)


class Term(Protocol):
    """A client-side term of the loss.

    `anchor` is the model the client was sent (in training) or downloaded last (at test time), `previous` the
    one it sent last; both hold at least the trainable tensors of `net`.
    """

    def __call__(
        self,
        net: nn.Module,
        x: Tensor,
        anchor: Mapping[str, Tensor],
        previous: Mapping[str, Tensor] | None,
    ) -> Tensor: ...


@dataclass(frozen=True)
class Proximal:
    """FedProx (Li et al., MLSys 2020): μ/2 · ‖w − w_anchor‖² over the trainable tensors."""

    mu: NonNegative

    def __call__(
        self,
        net: nn.Module,
        x: Tensor,
        anchor: Mapping[str, Tensor],
        previous: Mapping[str, Tensor] | None,
    ) -> Tensor:
        moved = [
            (tensor - anchor[name]).square().sum() for name, tensor in net.named_parameters() if tensor.requires_grad
        ]
        return 0.5 * self.mu * torch.stack(moved).sum()  # eq. (2)
