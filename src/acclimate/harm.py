"""Harm or help, seen without labels: an adapter beside the source model, and what its other answers are worth.

Serves the guard and the calibration that teaches it. Where both models answer alike, nothing is gained or lost. What an
answer of the adapter is worth where they differ (1: it is right and the source wrong, -1: the other way round) is
estimated as w · φ from that image and from what the last images have shown.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from acclimate import params
from acclimate.contracts import Adapter
from acclimate.losses import entropy
from acclimate.models.norms import batch_moments, before_each
from acclimate.params import Params
from acclimate.trees import Nest

# What the last images have shown, then what an image shows that both models answer differently.
SIGNS = (
    "one",
    "source entropy",
    "adapted entropy",
    "source concentration",
    "adapted concentration",
    "distance of histograms",
    "drift",
    "share that differs",
    "adapted model's preference for its own answer",
    "source model's preference for its own answer",
    "source model's preference, its prior corrected",
    "source's share of the source's answer",
    "source's share of the adapted answer",
    "adapted share of the source's answer",
    "adapted share of the adapted answer",
)
# The same sign means another thing where inputs are strange: each stands in φ as it is, then by how far the means, and
# by how far the variances of the first batch norm's inputs are from those it was trained with.
FEATURES = tuple(f"{sign}{by}" for by in ("", " · distance of means", " · distance of variances") for sign in SIGNS)


class Rule(NamedTuple):
    """What disagreements are worth, and how sure that is."""

    weights: Tensor  # w
    spread: Tensor  # the covariance of w

    def gain(self, shown: Tensor) -> tuple[Tensor, Tensor]:
        """What is gained where φ is this, in share of images, and the standard error of that."""
        return self.weights @ shown, (shown @ self.spread @ shown).clamp(min=0).sqrt()


# Where nothing was learnt for a model and an adapter: learnt as the phase `guard` does, on SVHN and Fashion-MNIST for
# twelve adapters, most also at ten times their rate, each with the same say (`python -m benchmarks.guard default`).
WEIGHTS = (
    -0.08, 0.47, 0.01, 0.15, -0.2, 0.25, -0.13, -0.39, 0.17, -0.3, -0.67, 0.36, 0.6, -1.28, 0.1,
    0.34, 0.05, 0.52, -0.15, -1.58, 0.28, -0.23, 0.06, 0.36, 0.37, 2.36, 1.41, -0.94, 0.27, -1.3,
    0.08, -0.01, 0.09, -0.28, -0.76, -0.04, 0.03, 0.14, 0.25, -1.76, 2.28, 0.5, -1.02, 0.61, -0.91,
)  # fmt: skip
# An estimate by them is doubted as if each had a standard error of 0.045.
DEFAULT = Rule(torch.tensor(WEIGHTS, dtype=torch.float64), 0.002 * torch.eye(len(FEATURES), dtype=torch.float64))


class Source:
    """The model as it was before adaptation, although tensors of it move: only copies of these are kept."""

    def __init__(self, adapter: Adapter) -> None:
        moving = {id(tensor) for tensor in adapter.moving().values()}
        self.net = adapter.net
        self._now = {name: tensor for name, tensor in _tensors(self.net).items() if id(tensor) in moving}
        self._then = {name: params.copy(tensor) for name, tensor in self._now.items()}
        self._size = _norm(self._then)
        norms = {n: m for n, m in self.net.named_modules() if isinstance(m, _BatchNorm) and m.running_mean is not None}
        self._first = dict(list(norms.items())[:1])
        self.inputs = torch.zeros(2, 0).double()  # of its first batch norm, standardised: their mean and mean square

    @torch.no_grad()
    def __call__(self, x: Tensor) -> Tensor:
        """Its logits."""
        with before_each(self._first, self._look):
            logits: Tensor = functional_call(self.net, self._then, (x,))
        return logits

    def _look(self, name: str, layer: _BatchNorm, x: Tensor) -> None:
        mean, variance = batch_moments(x.float(), unbiased=False)
        assert layer.running_mean is not None and layer.running_var is not None
        gone, spread = mean - layer.running_mean, layer.running_var + layer.eps
        self.inputs = torch.stack([gone / spread.sqrt(), (variance + gone.square()) / spread]).double()

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
        self.restart()

    def restart(self) -> None:
        """The adapter starts anew."""
        self.images = 0.0  # the weight of those since then
        self.shown = torch.zeros(len(FEATURES)).double()  # φ over them, zero where both answer alike; begins with d

    @torch.no_grad()
    def add(self, source: Tensor, adapted: Tensor, inputs: Tensor, drift: float, images: int) -> Tensor:
        """Note the logits by both models of some of `images`, and of these φ for each that they answer differently."""
        p, a = source.double().softmax(-1), adapted.double().softmax(-1)
        ours, theirs = p.argmax(-1), a.argmax(-1)
        differ, classes = ours != theirs, p.shape[1]
        kept = self.weight * math.exp(-images / self.window)
        self.weight = kept + images
        for name, value in {
            "prior": p.mean(0),
            "source histogram": F.one_hot(ours, classes).double().mean(0),
            "adapted histogram": F.one_hot(theirs, classes).double().mean(0),
            "source entropy": entropy(source.double()).mean() / math.log(classes),
            "adapted entropy": entropy(adapted.double()).mean() / math.log(classes),
            "differ": differ.double().mean(),
            "inputs": inputs,
            "drift": torch.tensor(drift, dtype=torch.float64),
        }.items():
            before = self.means.get(name, value)
            self.means[name] = before + (value - before) * (1 - kept / self.weight)
        phi = self._features(p[differ], a[differ], ours[differ], theirs[differ])
        kept = self.images * math.exp(-images / self.window)
        self.images = kept + images
        self.shown = self.shown + (phi.sum(0) / len(p) - self.shown) * (1 - kept / self.images)
        return phi

    def _features(self, p: Tensor, a: Tensor, ours: Tensor, theirs: Tensor) -> Tensor:
        m = self.means
        s, t, (mean, square) = m["source histogram"], m["adapted histogram"], m["inputs"]
        corrected = p * m["prior"]  # p(y | x) ∝ p_source(y | x) · prior, where the source's was even
        corrected = corrected / corrected.sum(-1, keepdim=True)
        shown = [
            torch.ones_like(m["differ"]), m["source entropy"], m["adapted entropy"], _concentration(s),
            _concentration(t), (s - t).abs().sum() / 2, m["drift"], m["differ"],
        ]  # fmt: skip
        of_images = [
            _preferred(a, theirs, ours), _preferred(p, ours, theirs), _preferred(corrected, ours, theirs),
            s[ours], s[theirs], t[ours], t[theirs],
        ]  # fmt: skip
        signs = torch.stack([*(one.expand(len(p)) for one in shown), *of_images], 1)
        strange = _distance(mean.abs()), _distance((square - mean.square()).clamp(min=1e-6).log().abs())
        return torch.cat([signs, *(signs * distance for distance in strange)], 1)

    def state(self) -> Nest:
        """For the guard's."""
        means = {name: mean.clone() for name, mean in self.means.items()}
        return {"weight": self.weight, "means": means, "images": self.images, "shown": self.shown}

    def load_state(self, state: Nest) -> None:
        """Go back to a state."""
        self.weight, self.means = state["weight"], {name: mean.clone() for name, mean in state["means"].items()}
        self.images, self.shown = state["images"], state["shown"]


def _preferred(p: Tensor, this: Tensor, that: Tensor) -> Tensor:
    rows = torch.arange(len(p))
    return p[rows, this] - p[rows, that]


def _concentration(histogram: Tensor) -> Tensor:
    """0 for even classes, 1 for a single one."""
    h: Tensor = -torch.special.xlogy(histogram, histogram).sum()
    return 1 - h / math.log(len(histogram))


def _distance(by_channel: Tensor) -> Tensor:
    """Their mean, 3 counting as 1 and more; 0 where there are none."""
    return (by_channel.sum() / max(len(by_channel), 1) / 3).clamp(max=1)


def _tensors(net: nn.Module) -> Params:
    return {**dict(net.named_parameters()), **dict(net.named_buffers())}


def _norm(tensors: Params) -> float:
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors.values()))
