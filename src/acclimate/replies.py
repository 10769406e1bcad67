"""What clients send back in a round, folded as it arrives."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from acclimate import params, trees
from acclimate.trees import Nest, Parcel, Skeleton


class Reply(NamedTuple):
    """What a client sends back. A weight of zero is a weight: such a reply counts for nothing in a mean."""

    update: Nest
    weight: float = 1.0
    metrics: dict[str, float] = {}  # noqa: RUF012  (never changed)


class Replies:
    """A round's replies, folded into a weighted sum as they arrive: memory does not grow with the cohort.

    >>> replies = Replies()
    >>> replies.add(0, Reply(torch.tensor(1.0), weight=1))
    >>> replies.add(1, Reply(torch.tensor(4.0), weight=2))
    >>> replies.mean(), len(replies)
    (tensor(3.), 2)
    """

    def __init__(self, keeps: bool = False) -> None:
        self.metrics: dict[int, dict[str, float]] = {}  # of each client, also of those left out
        self.left_out: list[int] = []  # clients whose reply was not finite
        self.lost: dict[int, str] = {}  # clients that never answered, and why
        self.weight = 0.0  # of all replies together
        self._keeps = keeps
        self._kept: list[tuple[int, Reply]] = []
        self._count = 0
        self._sum = torch.zeros(0, dtype=torch.float64)  # of all tensors, end to end
        self._tensors: list[tuple[torch.dtype, torch.Size]] = []
        self._skeleton: Skeleton = None

    def __len__(self) -> int:
        return self._count

    def add(self, client: int, reply: Reply) -> None:
        """Fold one client's reply in. One that is not finite is left out and remembered by name."""
        self.metrics[client] = dict(reply.metrics)
        tensors, skeleton = trees.flatten(reply.update)
        # float64: the mean of equal models is that model, to the bit.
        sizes = [tensor.numel() for tensor in tensors]
        weighted = torch.empty(sum(sizes), dtype=torch.float64)
        for tensor, place in zip(tensors, weighted.split(sizes), strict=True):
            place.copy_(tensor.detach().reshape(-1))
        weighted.mul_(reply.weight)
        # A sum is finite only if everything in it is: one pass instead of a mask.
        if reply.weight < 0 or not math.isfinite(reply.weight) or not math.isfinite(weighted.sum()):
            self.left_out.append(client)
            return
        self._fold(skeleton, [(tensor.dtype, tensor.shape) for tensor in tensors], weighted, reply.weight, 1)
        if self._keeps:
            self._kept.append((client, reply))

    def merge(self, later: Replies) -> None:
        """Fold in the replies of the next chunk of clients."""
        self.metrics.update(later.metrics)
        self.left_out.extend(later.left_out)
        self.lost.update(later.lost)
        self._kept.extend(later._kept)
        if later._count:
            self._fold(later._skeleton, later._tensors, later._sum, later.weight, later._count)

    def mean(self) -> Nest:
        """Σ_k (weight_k / Σ weight) · update_k."""
        return self._divided(self.weight)

    def sum(self) -> Nest:
        """Σ_k weight_k · update_k."""
        return self._divided(1.0)

    def items(self) -> list[tuple[int, Reply]]:
        """Every reply with its client; only for algorithms that declare `keeps = True`."""
        if not self._keeps:
            raise ValueError("replies were folded as they arrived; set `keeps = True` on the algorithm")
        return list(self._kept)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        known = {**vars(self), "_kept": Parcel(self._kept) if self._kept else None, "_sum": None}
        return _sent, (known, self._sum.numpy())  # as an array it travels as it is

    def _divided(self, by: float) -> Nest:
        if not self._count or not by:
            raise ValueError("no client's reply could be used, so there is neither a mean nor a sum")
        pieces = (self._sum / by).split([shape.numel() for _, shape in self._tensors])
        values = [
            params.cast(piece.view(shape), dtype) for piece, (dtype, shape) in zip(pieces, self._tensors, strict=True)
        ]
        return trees.unflatten(values, self._skeleton)

    def _fold(
        self, skeleton: Skeleton, tensors: list[tuple[torch.dtype, torch.Size]], sum: Tensor, weight: float, count: int
    ) -> None:
        if not self._count:
            self._skeleton, self._tensors, self._sum = skeleton, tensors, sum
        elif self._skeleton != skeleton or [kind for kind, _ in self._tensors] != [kind for kind, _ in tensors]:
            raise ValueError("replies of one round differ in structure and cannot be averaged")
        elif self._tensors != tensors:  # which could be stretched
            raise ValueError("replies of one round differ in shape and cannot be averaged")
        else:
            self._sum.add_(sum)  # both are ours
        self.weight += weight
        self._count += count


def _sent(known: dict[str, Any], numbers: NDArray[np.float64]) -> Replies:
    """Replies on their arrival."""
    replies = Replies()
    kept = [] if known["_kept"] is None else known["_kept"].open()
    vars(replies).update({**known, "_kept": kept, "_sum": torch.from_numpy(numbers)})
    return replies
