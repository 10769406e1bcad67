"""What a rule is given and what it gives back; and what rules share."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from acclimate.params import cast
from acclimate.trees import Nest

PIECE = 2**14  # numbers of one tensor at a time, so that what is stacked of all clients stays in the cache
Sent = Sequence[Tensor]  # the tensors of one client


class Judged(NamedTuple):
    """What counts instead of what clients sent, by how much, and what the rule remembers."""

    sent: Sequence[Sent]
    counts: Sequence[float]  # on top of a client's weight; 0: it was set aside
    memory: Nest


class Rule(ABC):
    """Judges what clients sent. Subclasses are frozen dataclasses of hyper-parameters."""

    @abstractmethod
    def judge(self, ids: Sequence[int], sent: Sequence[Sent], memory: Nest) -> Judged:
        """What becomes of what these clients sent; at least one. `memory` is None at first."""


@dataclass(frozen=True)
class Stateless(Rule):
    """A rule that changes numbers, each for itself, and remembers nothing."""

    @abstractmethod
    def change(self, many: Tensor) -> Tensor:
        """What counts instead: the same number of all clients is a column [K, numbers], in float64."""

    def judge(self, ids: Sequence[int], sent: Sequence[Sent], memory: Nest) -> Judged:
        return Judged(by_number(self.change, sent), [1.0] * len(sent), None)


def by_number(change: Callable[[Tensor], Tensor], sent: Sequence[Sent]) -> list[list[Tensor]]:
    """The tensors of all clients after a change of each number on its own; in their own types again."""
    changed: list[list[Tensor]] = [[] for _ in sent]
    for tensors in zip(*sent, strict=True):
        made = torch.empty((len(sent), tensors[0].numel()), dtype=tensors[0].dtype)
        for place, many in _pieces(tensors):
            made[:, place] = cast(change(many), made.dtype)
        for own, row, tensor in zip(changed, made, tensors, strict=True):
            own.append(row.view_as(tensor))
    return changed


def middle(sent: Sequence[Sent]) -> list[Tensor]:
    """The median of each number, in float64."""
    return [
        torch.cat([median(many) for _, many in _pieces(tensors)] or [torch.zeros(0, dtype=torch.float64)]).view_as(
            tensors[0]
        )
        for tensors in zip(*sent, strict=True)
    ]


def median(many: Tensor) -> Tensor:
    """The median of each column; between the two in the middle, their mean."""
    ordered, k = many.sort(0).values, len(many)
    return (ordered[(k - 1) // 2] + ordered[k // 2]) / 2


def products(sent: Sequence[Sent], origin: Sent) -> Tensor:
    """The K x K inner products of what clients sent, seen from `origin`, in float64."""
    total = torch.zeros(len(sent), len(sent), dtype=torch.float64)
    for tensors, start in zip(zip(*sent, strict=True), origin, strict=True):
        flat = start.double().flatten()
        for place, many in _pieces(tensors):
            seen = many.sub_(flat[place])
            total.addmm_(seen, seen.T)
    return total


def moved(origin: Sent, sent: Sent, factor: float) -> list[Tensor]:
    """Origin + factor (sent − origin), in the types of what was sent."""
    if factor == 1.0:
        return list(sent)
    return [
        cast(start.double() + factor * (tensor.double() - start.double()), tensor.dtype)
        for start, tensor in zip(origin, sent, strict=True)
    ]


def mean(sent: Sequence[Sent], weights: Sequence[float]) -> list[Tensor]:
    """The weighted mean, in float64."""
    total = sum(weights)
    return [
        torch.stack([w / total * tensor.double() for w, tensor in zip(weights, tensors, strict=True)]).sum(0)
        for tensors in zip(*sent, strict=True)
    ]


def hostile(share: float, clients: int) -> int:
    """How many of so many clients that share is, rounded up, and less than half of them.

    >>> hostile(0.2, 10), hostile(0.2, 4), hostile(0.5, 4)
    (2, 1, 1)
    """
    return min(math.ceil(share * clients - 1e-9), (clients - 1) // 2)


def _pieces(tensors: Sequence[Tensor]) -> Iterator[tuple[slice, Tensor]]:
    """Tensors of one shape as rows of a matrix in float64, some columns at a time, and which columns."""
    flat = [tensor.detach().reshape(-1) for tensor in tensors]
    for start in range(0, len(flat[0]), PIECE):
        place = slice(start, start + PIECE)
        yield place, torch.stack([row[place] for row in flat]).double()
