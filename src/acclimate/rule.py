"""What an adapter's other answers are worth: a linear rule of what is seen, and how labelled examples teach it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from acclimate.errors import ConfigError
from acclimate.harm import FEATURES, WAVES, Look, Signals
from acclimate.mixture import Answers, Classes


class Rule(NamedTuple):
    """What disagreements are worth, and how sure that is."""

    weights: Tensor  # w
    spread: Tensor  # the covariance of w
    classes: Classes | None = None  # the source model's features of each class; None: nobody has told

    def checked(self) -> Rule:
        """This rule, if it is one of what this version sees."""
        if len(self.weights) != len(FEATURES):
            found = f"rule: of {len(self.weights)} features, where this version of acclimate has {len(FEATURES)}"
            raise ConfigError([f"{found}; learn it again: phase 'guard', or ac.calibrate(..., guard=True)"], "guard")
        return self

    def gain(self, shown: Tensor) -> tuple[Tensor, Tensor]:
        """What is gained where φ is this, in share of images, and the standard error of that."""
        return self.weights @ shown, (shown @ self.spread @ shown).clamp(min=0).sqrt()


# Where nothing was learnt for a model and an adapter, a rule without waves: learnt as the phase `guard` does, on SVHN
# and Fashion-MNIST for twelve adapters, most also at ten times their rate, each with the same say (`python -m
# benchmarks.guard default`).
WEIGHTS = (
    -0.09, 0.13, -0.18, -0.32, 0.38, -0.12, 0.01, -0.05, 0.88, -0.18,
    0.51, -0.84, -0.18, 0.78, -0.87, 0.49, -1.25, 0.94, -0.84,
    -0.42, 0.56, 0.15, 0.55, -0.5, 0.34, 0.04, -0.67, 0.25, 0.27,
    -0.4, 0.49, 0.14, 0.05, 0.08, -0.1, -0.35, -0.46, 0.49,
    0.05, 0.71, 0.39, -0.79, -0.95, 0.47, -0.05, -0.32, 0.38, 0.38,
    -1.03, 0.7, 1.38, -0.96, 0.16, -0.61, 0.17, -0.5, 0.7,
)  # fmt: skip
# An estimate by them is doubted as if each had a standard error of 0.045.
DEFAULT = Rule(
    torch.tensor([*WEIGHTS, *[0.0] * WAVES], dtype=torch.float64), 0.002 * torch.eye(len(FEATURES), dtype=torch.float64)
)


class Said(NamedTuple):
    """What both models say of a batch, and what is right."""

    source: Look
    adapted: Tensor
    drift: float
    right: Tensor


class Sums(NamedTuple):
    """The normal equations of a linear rule, over all images that both models answer differently; all that leaves."""

    squares: Tensor  # Σ φ φᵀ; as φ begins with one, its first entry is the number of these images
    gains: Tensor  # Σ φ g, where g is 1 if the adapter is right, -1 if the source model is, else 0
    answers: Answers  # the source model's features of each class


def summed(stream: Iterable[Said], window: float, answers: Answers) -> Sums:
    """What a stream teaches to a guard that looks back on about `window` images and knows these answers."""
    seen, n = Signals(window, answers.classes()), len(FEATURES)
    sums = Sums(torch.zeros(n, n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64), answers)
    for source, adapted, drift, right in stream:
        which, phi = seen.add(source, adapted, drift, len(right))
        ours, theirs = source.logits[which].argmax(-1), adapted[which].argmax(-1)
        g = (theirs == right[which]).double() - (ours == right[which]).double()
        sums = Sums(sums.squares + phi.T @ phi, sums.gains + phi.T @ g, answers)
    return sums


def solved(sums: Sums, ridge: float, start: Tensor) -> Rule:
    """The rule w = argmin Σ (w · φ − g)² + ridge |w − start|², and its covariance for gains of variance one.

    >>> solved(Sums(torch.eye(1), torch.tensor([3.0]), Answers.none(2, 4)), 1.0, torch.tensor([1.0])).weights
    tensor([2.])
    """
    spread: Tensor = torch.linalg.inv(sums.squares + ridge * torch.eye(len(start), dtype=start.dtype))
    return Rule(spread @ (sums.gains + ridge * start), spread, sums.answers.classes())
