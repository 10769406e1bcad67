"""Which classes a stream seems to have, from what a model answers on average: the mixture of its answers to each class.

Under label shift the mean logits of a stream are a mixture of those of the classes, with the shares of the classes as
weights, whatever they are. Logits tell more than a histogram of predictions, whose errors repeat themselves.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from acclimate.simplex import to_simplex

FLOOR = 0.1  # of the mean spread of logits, so that no direction counts without bound
LEAST = 1e-9  # of all of them, for a model that answers every example of a class alike
STEPS = 10  # of the fit, which begins where the last one ended


def centred(logits: Tensor) -> Tensor:
    """Logits in double precision, less their mean, which no prediction depends on."""
    wide = logits.double()
    return wide - wide.mean(-1, keepdim=True)


class Answers(NamedTuple):
    """Sums of a model's answers to labelled examples; all that is needed to know its answers to each class."""

    counts: Tensor  # examples of each class
    logits: Tensor  # their sum, a row a class
    squares: Tensor  # Σ z zᵀ over all of them

    @classmethod
    def to(cls, logits: Tensor, y: Tensor) -> Answers:
        z = centred(logits)
        of = torch.nn.functional.one_hot(y, z.shape[1]).double()
        return cls(of.sum(0), of.T @ z, z.T @ z)

    @classmethod
    def none(cls, classes: int) -> Answers:
        square = torch.zeros(2, classes, classes, dtype=torch.float64)
        return cls(torch.zeros(classes, dtype=torch.float64), *square)

    def plus(self, other: Answers) -> Answers:
        return Answers(self.counts + other.counts, self.logits + other.logits, self.squares + other.squares)

    def classes(self) -> Classes | None:
        """What there is to compare a stream with; None: nothing was answered."""
        there = self.counts > 0
        if not there.any():
            return None
        means = self.logits[there] / self.counts[there, None]
        within = (self.squares - means.T @ self.logits[there]) / self.counts.sum()
        size = within.diagonal().mean() + LEAST * (1 + self.squares.diagonal().mean() / self.counts.sum())
        spread = within + FLOOR * size * torch.eye(len(within), dtype=within.dtype)
        onto = means @ torch.linalg.inv(spread)
        return Classes(there, onto, onto @ means.T)


class Classes(NamedTuple):
    """A model's mean answer to each class, where logits are measured by how they spread within a class."""

    there: Tensor  # whether examples of a class were seen
    onto: Tensor  # takes logits to their products with the mean answers to these
    gram: Tensor  # the products of the mean answers with one another

    def shares(self, logits: Tensor, start: Tensor | None = None) -> Tensor:
        """The distribution over classes whose mixture is nearest to mean logits, by accelerated projected gradients."""
        wanted, rate = self.onto @ logits, 1 / self.gram.abs().sum(0).max().clamp(min=LEAST)
        now = torch.full_like(wanted, 1 / len(wanted)) if start is None else start[self.there]
        ahead, t = now, 1.0
        for _ in range(STEPS):
            before, now = now, to_simplex(ahead - rate * (self.gram @ ahead - wanted))
            t, past = (1 + math.sqrt(1 + 4 * t * t)) / 2, t
            ahead = now + (past - 1) / t * (now - before)
        return torch.zeros(len(self.there), dtype=now.dtype).masked_scatter(self.there, now)
