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
from acclimate.mixture import Classes, centred
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
    "concentration of the stream",
    "adapted model's preference for its own answer",
    "source model's preference for its own answer",
    "source model's preference, its prior corrected",
    "source's share of the source's answer",
    "source's share of the adapted answer",
    "adapted share of the source's answer",
    "adapted share of the adapted answer",
    "stream's share of the source's answer",
    "stream's share of the adapted answer",
    "source model's preference, corrected by the stream's shares",
)
# The same sign means another thing where inputs are strange: each stands in φ as it is, then by how far the means, and
# by how far the variances of the first batch norm's inputs are from those it was trained with. Between a little and
# none at all a distance makes more of a difference than beyond.
FEATURES = tuple(f"{sign}{by}" for by in ("", " · distance of means", " · distance of variances") for sign in SIGNS)


HALF = 0.1  # a distance of so many standard deviations, or of logarithms of variances, is half of the longest


class Rule(NamedTuple):
    """What disagreements are worth, and how sure that is."""

    weights: Tensor  # w
    spread: Tensor  # the covariance of w
    classes: Classes | None = None  # how the source model answers each class; None: nobody has told

    def gain(self, shown: Tensor) -> tuple[Tensor, Tensor]:
        """What is gained where φ is this, in share of images, and the standard error of that."""
        return self.weights @ shown, (shown @ self.spread @ shown).clamp(min=0).sqrt()


# Where nothing was learnt for a model and an adapter: learnt as the phase `guard` does, on SVHN and Fashion-MNIST for
# twelve adapters, most also at ten times their rate, each with the same say (`python -m benchmarks.guard default`).
WEIGHTS = (
    -0.09, 0.13, -0.18, -0.32, 0.38, -0.12, 0.01, -0.05, 0.88, -0.18,
    0.51, -0.84, -0.18, 0.78, -0.87, 0.49, -1.25, 0.94, -0.84,
    -0.42, 0.56, 0.15, 0.55, -0.5, 0.34, 0.04, -0.67, 0.25, 0.27,
    -0.4, 0.49, 0.14, 0.05, 0.08, -0.1, -0.35, -0.46, 0.49,
    0.05, 0.71, 0.39, -0.79, -0.95, 0.47, -0.05, -0.32, 0.38, 0.38,
    -1.03, 0.7, 1.38, -0.96, 0.16, -0.61, 0.17, -0.5, 0.7,
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

    def __init__(self, window: float, classes: Classes | None = None) -> None:
        self.window, self.classes = window, classes
        self.shares: Tensor | None = None  # of classes in the stream, as they seem
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
            "logits": centred(source).mean(0),
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
        known = self.classes
        self.shares = self.means["prior"] if known is None else known.shares(self.means["logits"], self.shares)
        phi = self._features(p[differ], a[differ], ours[differ], theirs[differ])
        kept = self.images * math.exp(-images / self.window)
        self.images = kept + images
        self.shown = self.shown + (phi.sum(0) / len(p) - self.shown) * (1 - kept / self.images)
        return phi

    def _features(self, p: Tensor, a: Tensor, ours: Tensor, theirs: Tensor) -> Tensor:
        m, pi = self.means, self.shares
        assert pi is not None
        s, t, (mean, square) = m["source histogram"], m["adapted histogram"], m["inputs"]
        shown = [
            torch.ones_like(m["differ"]), m["source entropy"], m["adapted entropy"], _concentration(s),
            _concentration(t), (s - t).abs().sum() / 2, m["drift"], m["differ"], _concentration(pi),
        ]  # fmt: skip
        of_images = [
            _preferred(a, theirs, ours), _preferred(p, ours, theirs),
            _preferred(_corrected(p, m["prior"]), ours, theirs),
            s[ours], s[theirs], t[ours], t[theirs], pi[ours], pi[theirs], _preferred(_corrected(p, pi), ours, theirs),
        ]  # fmt: skip
        signs = torch.stack([*(one.expand(len(p)) for one in shown), *of_images], 1)
        strange = _distance(mean.abs()), _distance((square - mean.square()).clamp(min=1e-6).log().abs())
        return torch.cat([signs, *(signs * distance for distance in strange)], 1)

    def state(self) -> Nest:
        """For the guard's."""
        means = {name: mean.clone() for name, mean in self.means.items()}
        shares = None if self.shares is None else self.shares.clone()
        return {"weight": self.weight, "means": means, "shares": shares, "images": self.images, "shown": self.shown}

    def load_state(self, state: Nest) -> None:
        """Go back to a state."""
        self.weight, self.means = state["weight"], {name: mean.clone() for name, mean in state["means"].items()}
        self.shares, self.images, self.shown = state["shares"], state["images"], state["shown"]


def _preferred(p: Tensor, this: Tensor, that: Tensor) -> Tensor:
    rows = torch.arange(len(p))
    return p[rows, this] - p[rows, that]


def _corrected(p: Tensor, prior: Tensor) -> Tensor:
    """p(y | x) ∝ p_source(y | x) · prior, where the source's was even."""
    product = p * prior
    return product / product.sum(-1, keepdim=True).clamp(min=torch.finfo(p.dtype).tiny)


def _concentration(histogram: Tensor) -> Tensor:
    """0 for even classes, 1 for a single one; the root, since the step from all classes to some matters most."""
    h: Tensor = -torch.special.xlogy(histogram, histogram).sum()
    return (1 - h / math.log(len(histogram))).clamp(min=0).sqrt()


def _distance(by_channel: Tensor) -> Tensor:
    """Their mean, of which `HALF` counts as half and endless as 1; 0 where there are none."""
    mean = by_channel.sum() / max(len(by_channel), 1)
    return mean / (mean + HALF)


def _tensors(net: nn.Module) -> Params:
    return {**dict(net.named_parameters()), **dict(net.named_buffers())}


def _norm(tensors: Params) -> float:
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors.values()))
