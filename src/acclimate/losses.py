"""Losses without labels, and what a term that clients add to theirs looks like (`terms.py` has them)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor, nn


def entropy(logits: Tensor) -> Tensor:
    """H(softmax(logits)) of each row, in nats.

    >>> round(float(entropy(Tensor([[0, 0, 0, 0]]))), 4)  # uniform over four classes: ln 4
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
