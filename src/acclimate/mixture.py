"""Which classes a stream seems to have: the mixture of a model's mean features of each class that is nearest to it.

Under label shift the mean features of a stream (what the model's head is given) are a mixture of those of the classes,
with the shares of the classes as weights, whatever they are. A histogram of predictions repeats the model's errors;
features tell more, also than logits, in which classes that the model confuses lie together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from acclimate.simplex import to_simplex

FLOOR = 0.1  # of the mean variance of features, so that none counts without bound
LEAST = 1e-9  # of their mean square, for a model that sees every example of a class alike
STEPS = 10  # of the fit, which begins where the last one ended


class Answers(NamedTuple):
    """Sums of a model's features of labelled examples; all that is needed to know those of each class."""

    counts: Tensor  # examples of each class
    features: Tensor  # their sum, a row a class
    squares: Tensor  # the sum of their squares over all classes, for each feature

    @classmethod
    def to(cls, features: Tensor, y: Tensor, classes: int) -> Answers:
        z = features.double()
        of = torch.nn.functional.one_hot(y, classes).double()
        return cls(of.sum(0), of.T @ z, z.square().sum(0))

    @classmethod
    def none(cls, classes: int, features: int) -> Answers:
        z = torch.zeros(classes + 1, features, dtype=torch.float64)
        return cls(torch.zeros(classes, dtype=torch.float64), z[1:], z[0])

    def plus(self, other: Answers) -> Answers:
        return Answers(self.counts + other.counts, self.features + other.features, self.squares + other.squares)

    def classes(self) -> Classes | None:
        """What there is to compare a stream with; None: nothing was answered."""
        there = self.counts > 0
        if not there.any():
            return None
        means, square = self.features[there] / self.counts[there, None], self.squares / self.counts.sum()
        within = (square - (means * self.features[there]).sum(0) / self.counts.sum()).clamp(min=0)
        spread = within + FLOOR * within.mean() + LEAST * (1 + square.mean())
        middle = means.mean(0)  # shares add up to one, so that what all classes have in common tells nothing
        onto = (means - middle) / spread
        return Classes(there, middle, onto, onto @ (means - middle).T)


class Classes(NamedTuple):
    """A model's mean features of each class, each measured by how it spreads within a class."""

    there: Tensor  # whether examples of a class were seen
    middle: Tensor  # of the means of these
    onto: Tensor  # takes features, less the middle, to their products with the means
    gram: Tensor  # the products of the means with one another

    def shares(self, features: Tensor, start: Tensor | None = None) -> Tensor:
        """The distribution over classes whose mixture is nearest to mean features: accelerated projected gradients."""
        wanted = self.onto @ (features - self.middle)
        rate = 1 / self.gram.abs().sum(0).max().clamp(min=LEAST)
        now = torch.full_like(wanted, 1 / len(wanted)) if start is None else start[self.there]
        ahead, t = now, 1.0
        for _ in range(STEPS):
            before, now = now, to_simplex(ahead - rate * (self.gram @ ahead - wanted))
            t, past = (1 + math.sqrt(1 + 4 * t * t)) / 2, t
            ahead = now + (past - 1) / t * (now - before)
        return torch.zeros(len(self.there), dtype=now.dtype).masked_scatter(self.there, now)
