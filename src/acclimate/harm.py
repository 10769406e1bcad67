"""Harm or help, seen without labels: an adapter beside the source model, and what its predictions are worth.

Serves the guard and the calibration that teaches it. A rule is a vector of weights w: the gain of an adapter, in share
of images, is estimated as w · φ, where every entry of φ is zero as long as both predict the same.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from acclimate import params
from acclimate.contracts import Adapter
from acclimate.losses import entropy
from acclimate.params import Params
from acclimate.trees import Nest

# φ by name. d: share of images on which both differ; each of the others is a mean over images, times d where it is not
# of these images alone.
FEATURES = (
    "d",
    "d · source entropy",
    "d · adapted entropy",
    "d · source concentration",
    "d · adapted concentration",
    "d · distance of histograms",
    "d · drift",
    "d · d",
    "adapted model's preference for its own answer",
    "source model's preference for its own answer",
    "source model's preference, its prior corrected",
)
# Where nothing was learnt for a model and an adapter: learnt as the phase `guard` does, on SVHN and Fashion-MNIST for
# twelve adapters, most also at ten times their rate, each with the same say (`python -m benchmarks.guard default`).
RULE = (-0.23, 0.55, 0.34, 0.48, -0.77, 1.12, -0.17, -0.79, 0.6, -0.24, -0.95)


class Source:
    """The model as it was before adaptation, although tensors of it move: only copies of these are kept."""

    def __init__(self, adapter: Adapter) -> None:
        moving = {id(tensor) for tensor in adapter.moving().values()}
        self.net = adapter.net
        self._now = {name: tensor for name, tensor in _tensors(self.net).items() if id(tensor) in moving}
        self._then = {name: params.copy(tensor) for name, tensor in self._now.items()}
        self._size = _norm(self._then)

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Its logits."""
        logits: Tensor = functional_call(self.net, self._then, (x,))
        return logits

    @torch.no_grad()
    def drift(self) -> float:
        """How far what moves has gone from it, as a share of its size; at most 1."""
        if not self._now:
            return 0.0
        gone = _norm(params.sub(self._now, self._then)) / max(self._size, 1e-12)
        return min(gone, 1.0)


class Signals:
    """What batches show of both models, as running means over about `window` images."""

    def __init__(self, window: float) -> None:
        self.window = window
        self.weight = 0.0  # of all images so far; an image loses e-fold after `window` others
        self.means: Params = {}

    @torch.no_grad()
    def add(self, source: Tensor, adapted: Tensor, drift: float) -> None:
        """Note the logits of one batch by both models."""
        p, a = source.double().softmax(-1), adapted.double().softmax(-1)
        ours, theirs = p.argmax(-1, keepdim=True), a.argmax(-1, keepdim=True)
        differ, classes = (ours != theirs).double().squeeze(1), p.shape[1]
        kept = self.weight * math.exp(-len(p) / self.window)
        self.weight = kept + len(p)
        self._mean("prior", p.mean(0), kept)
        corrected = p * self.means["prior"]  # p(y | x) ∝ p_source(y | x) · prior, where the source's was even
        corrected = corrected / corrected.sum(-1, keepdim=True)
        for name, value in {
            "source histogram": F.one_hot(ours.squeeze(1), classes).double().mean(0),
            "adapted histogram": F.one_hot(theirs.squeeze(1), classes).double().mean(0),
            "source entropy": entropy(source.double()).mean() / math.log(classes),
            "adapted entropy": entropy(adapted.double()).mean() / math.log(classes),
            "differ": differ.mean(),
            "adapted preference": (differ * _preferred(a, theirs, ours)).mean(),
            "source preference": (differ * _preferred(p, ours, theirs)).mean(),
            "corrected preference": (differ * _preferred(corrected, ours, theirs)).mean(),
            "drift": torch.tensor(drift, dtype=torch.float64),
        }.items():
            self._mean(name, value, kept)

    def features(self) -> Tensor:
        """φ."""
        m = self.means
        d, s, a = m["differ"], m["source histogram"], m["adapted histogram"]
        of = [
            torch.ones_like(d), m["source entropy"], m["adapted entropy"], _concentration(s), _concentration(a),
            (s - a).abs().sum() / 2, m["drift"], d,
        ]  # fmt: skip
        rest = [m["adapted preference"], m["source preference"], m["corrected preference"]]
        return torch.stack([*(d * one for one in of), *rest])

    def state(self) -> Nest:
        """For the guard's."""
        return {"weight": self.weight, "means": {name: mean.clone() for name, mean in self.means.items()}}

    def load_state(self, state: Nest) -> None:
        """Go back to a state."""
        self.weight, self.means = state["weight"], {name: mean.clone() for name, mean in state["means"].items()}

    def _mean(self, name: str, value: Tensor, kept: float) -> None:
        before = self.means.get(name, value)
        self.means[name] = before + (value - before) * (1 - kept / self.weight)


def _preferred(p: Tensor, this: Tensor, that: Tensor) -> Tensor:
    return (p.gather(1, this) - p.gather(1, that)).squeeze(1)


def _concentration(histogram: Tensor) -> Tensor:
    """0 for even classes, 1 for a single one."""
    h: Tensor = -torch.special.xlogy(histogram, histogram).sum()
    return 1 - h / math.log(len(histogram))


def _tensors(net: nn.Module) -> Params:
    return {**dict(net.named_parameters()), **dict(net.named_buffers())}


def _norm(tensors: Params) -> float:
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors.values()))
