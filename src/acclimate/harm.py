"""Harm or help, seen without labels: the signs that an adapter and the source model give, side by side.

Serves the guard and the calibration that teaches it. Where both models answer alike, nothing is gained or lost. What an
answer of the adapter is worth where they differ (1: it is right and the source wrong, -1: the other way round) is
estimated as w · φ (`acclimate.rule`) from that image and from what the last images have shown.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from acclimate import params
from acclimate.contracts import Adapter
from acclimate.errors import UnsupportedModel
from acclimate.losses import entropy
from acclimate.mixture import Classes
from acclimate.models.head import head_of
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
STRAIGHT = tuple(f"{sign}{by}" for by in ("", " · distance of means", " · distance of variances") for sign in SIGNS)
HALF = 0.1  # a distance of so many standard deviations, or of logarithms of variances, is half of the longest
# What a sign means hangs on all the others, and no list of products says how. So φ also has cosines of random mixtures
# of these features: a rule that is linear in them bends where examples ask for it, as one with a Gaussian kernel does
# (random Fourier features; Rahimi & Recht, NeurIPS 2007), and sums are still all that travels.
WAVES, HEIGHT = 300, 0.1  # how many; a kernel of so much at a distance of 0
FEATURES = (*STRAIGHT, *(f"wave {i}" for i in range(WAVES)))
_draws = np.random.RandomState(0)  # the generator of numpy whose numbers never change
_FREQUENCIES = torch.from_numpy(_draws.standard_normal((len(STRAIGHT), WAVES)))  # for a kernel of width 1
_PHASES = torch.from_numpy(_draws.uniform(0, 2 * math.pi, WAVES))


class Look(NamedTuple):
    """What the source model says and sees of a batch."""

    logits: Tensor
    features: Tensor  # what its head is given, a row an example; logits, less their mean, where a model has no head
    inputs: Tensor  # of its first batch norm, standardised: their mean and mean square


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
        self._head = _head(self.net)

    def __call__(self, x: Tensor) -> Tensor:
        """Its logits."""
        return self.look(x).logits

    @torch.no_grad()
    def look(self, x: Tensor) -> Look:
        """Its logits, and what it sees on the way to them."""
        norm, given = [torch.zeros(2, 0).double()], list[Tensor]()
        with (
            before_each(self._first, lambda _, layer, x: norm.append(_standardised(layer, x))),
            _given(self._head, given),
        ):
            logits: Tensor = functional_call(self.net, self._then, (x,))
        return Look(logits, self._features(logits, given), norm[-1])

    def _features(self, logits: Tensor, given: list[Tensor]) -> Tensor:
        if self._head is None:
            return logits - logits.mean(-1, keepdim=True)
        if not given:  # a layer that is there and not used
            return logits.new_zeros(len(logits), self._head.in_features)
        return given[-1].reshape(len(logits), -1, self._head.in_features).mean(1)  # over tokens, if there are any

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
    def add(self, look: Look, adapted: Tensor, drift: float, images: int) -> tuple[Tensor, Tensor]:
        """Note what both models say of some of `images`; which of these they answer differently, and φ of each."""
        source = look.logits
        p, a = source.double().softmax(-1), adapted.double().softmax(-1)
        ours, theirs = p.argmax(-1), a.argmax(-1)
        differ, classes = ours != theirs, p.shape[1]
        kept = self.weight * math.exp(-images / self.window)
        self.weight = kept + images
        for name, value in {
            "prior": p.mean(0),
            "features": look.features.double().mean(0),
            "source histogram": F.one_hot(ours, classes).double().mean(0),
            "adapted histogram": F.one_hot(theirs, classes).double().mean(0),
            "source entropy": entropy(source.double()).mean() / math.log(classes),
            "adapted entropy": entropy(adapted.double()).mean() / math.log(classes),
            "differ": differ.double().mean(),
            "inputs": look.inputs,
            "drift": torch.tensor(drift, dtype=torch.float64),
        }.items():
            before = self.means.get(name, value)
            self.means[name] = before + (value - before) * (1 - kept / self.weight)
        known = self.classes
        self.shares = self.means["prior"] if known is None else known.shares(self.means["features"], self.shares)
        phi = self._features(p[differ], a[differ], ours[differ], theirs[differ])
        kept = self.images * math.exp(-images / self.window)
        self.images = kept + images
        self.shown = self.shown + (phi.sum(0) / len(p) - self.shown) * (1 - kept / self.images)
        return differ, phi

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
        return with_waves(torch.cat([signs, *(signs * distance for distance in strange)], 1))

    def state(self) -> Nest:
        """For the guard's."""
        means = {name: mean.clone() for name, mean in self.means.items()}
        shares = None if self.shares is None else self.shares.clone()
        return {"weight": self.weight, "means": means, "shares": shares, "images": self.images, "shown": self.shown}

    def load_state(self, state: Nest) -> None:
        """Go back to a state."""
        self.weight, self.means = state["weight"], {name: mean.clone() for name, mean in state["means"].items()}
        self.shares, self.images, self.shown = state["shares"], state["images"], state["shown"]


def with_waves(straight: Tensor) -> Tensor:
    """φ, from features of which some matter only together with others."""
    waves = math.sqrt(2 * HEIGHT / WAVES) * (straight @ _FREQUENCIES + _PHASES).cos()
    return torch.cat([straight, waves], 1)


def width(net: nn.Module, classes: int) -> int:
    """How many features of an example a look at a model has."""
    head = _head(net)
    return classes if head is None else head.in_features


def _head(net: nn.Module) -> nn.Linear | None:
    try:
        return head_of(net)[1]
    except UnsupportedModel:
        return None


@contextmanager
def _given(head: nn.Linear | None, to: list[Tensor]) -> Iterator[None]:
    """Note what a head is given meanwhile."""
    hook = head.register_forward_pre_hook(lambda _, inputs: to.append(inputs[0])) if head is not None else None
    try:
        yield
    finally:
        if hook is not None:
            hook.remove()


def _standardised(layer: _BatchNorm, x: Tensor) -> Tensor:
    mean, variance = batch_moments(x.float(), unbiased=False)
    assert layer.running_mean is not None and layer.running_var is not None
    gone, spread = mean - layer.running_mean, layer.running_var + layer.eps
    return torch.stack([gone / spread.sqrt(), (variance + gone.square()) / spread]).double()


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
