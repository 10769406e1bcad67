"""A bundle as ONNX: (images, state) → (logits, state), for methods that take no gradient at test time.

Each is written here once more as a function of tensors alone, of any number of images, since a traced graph knows no
Python numbers; what is written is compared with the adapter itself, by onnxruntime, before it is handed over.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from acclimate import beta, trees
from acclimate.adapters.bbse import BBSE
from acclimate.adapters.bn_adapt import BNAdapt
from acclimate.adapters.btfl import BTFL
from acclimate.adapters.em import EM
from acclimate.adapters.none import NoAdaptation
from acclimate.adapters.t3a import T3A
from acclimate.contracts import Adapter
from acclimate.device.adapted import Adapted
from acclimate.errors import UnsupportedModel
from acclimate.losses import entropy
from acclimate.models.head import features
from acclimate.params import Params
from acclimate.simplex import to_simplex

FILE = "model.onnx"
OPSET = 18
Step = Callable[[Tensor, Params], tuple[Tensor, Params]]  # images and state to logits and state


def write(adapted: Adapted, folder: Path, shape: Sequence[int]) -> Path:
    """Write `model.onnx` into a bundle's folder. Inputs are `images` and the state by name, outputs `logits` and the
    state again as `next.<name>`; the state before the first batch is in `state.safetensors`.
    """  # noqa: D205
    _need("onnx", "onnxruntime")
    adapted.reset()
    module = graph(adapted.adapter)
    first, x = module.first, _some_images(shape, 4)
    names = list(first)
    path = folder / FILE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter, about itself
        torch.onnx.export(
            module.eval(),
            (x, *first.values()),
            str(path),
            input_names=["images", *names],
            output_names=["logits", *(f"next.{name}" for name in names)],
            dynamic_axes=_dynamic(module),
            opset_version=OPSET,
            dynamo=False,
        )
    _declare(path, first)
    _check(adapted, path, first, shape)
    (folder / "state.safetensors").write_bytes(trees.dump(first))
    return path


def graph(adapter: Adapter) -> Graph:
    """An adapter's forward as a module without memory."""
    make = STEPS.get(type(adapter))
    if make is None:
        possible = ", ".join(sorted(kind.__name__ for kind in STEPS))
        raise UnsupportedModel(
            f"{type(adapter).__name__} takes gradients at test time, or has no ONNX form; these have one: {possible}. "
            "Others run with torch: ac.load"
        )
    adapter = copy.deepcopy(adapter).requires_grad_(False)
    step, first, growing = make(adapter)
    return Graph(adapter.net, step, first, growing)


class Graph(nn.Module):
    """(images, state) → (logits, state)."""

    def __init__(self, net: nn.Module, step: Step, first: Params, growing: bool) -> None:
        super().__init__()
        self.net, self.step, self.first, self.growing = net, step, first, growing

    def forward(self, x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        logits, after = self.step(x, dict(zip(self.first, state, strict=True)))
        return logits, *after.values()


def _none(adapter: Adapter) -> tuple[Step, Params, bool]:
    return lambda x, state: (adapter.net(x), {}), {}, False


def _em(adapter: EM) -> tuple[Step, Params, bool]:
    def step(x: Tensor, state: Params) -> tuple[Tensor, Params]:
        log_p = posterior = adapter.net(x).log_softmax(-1)
        log_prior = state["log_prior"]
        for _ in range(adapter.iterations):
            log_prior = posterior.logsumexp(0) - _count(log_p).log()  # eq. (2.9) of Saerens et al.
            posterior = (log_p + log_prior).log_softmax(-1)
        return posterior, {"log_prior": log_prior}

    return step, {"log_prior": torch.zeros(_classes(adapter.net))}, False


def _bbse(adapter: BBSE) -> tuple[Step, Params, bool]:
    def step(x: Tensor, state: Params) -> tuple[Tensor, Params]:
        logits = adapter.net(x)
        hard = F.one_hot(logits.argmax(-1), logits.shape[1])
        p = (logits.softmax(-1) if adapter.kind == "soft" else hard).double()
        q = to_simplex(adapter.inverse @ p.mean(0))  # ŵ = Ĉ⁻¹ μ̂, eq. (4) of Lipton et al.
        prior = ((1 - adapter.smoothing) * q + adapter.smoothing / len(q)).to(logits.dtype)
        return logits + prior.log(), {"prior": prior}

    classes = len(adapter.inverse)
    return step, {"prior": torch.full((classes,), 1 / classes)}, False


def _bn_adapt(adapter: BNAdapt) -> tuple[Step, Params, bool]:
    seen: Params = {}
    for name, layer in adapter.layers.items():
        parent, _, last = name.rpartition(".")
        adapter.net.get_submodule(parent).register_module(last, _Mixing(adapter, name, layer, seen))

    def step(x: Tensor, state: Params) -> tuple[Tensor, Params]:
        seen.clear()
        logits = adapter.net(x)
        return logits, {name: seen[name] for name in state}

    return step, {name: tensor.clone() for name, tensor in adapter.source.items()}, False


class _Mixing(nn.Module):
    """A batch norm on the source's statistics mixed with the batch's."""

    def __init__(self, adapter: BNAdapt, name: str, layer: _BatchNorm, seen: Params) -> None:
        super().__init__()
        self.layer, self.name, self.seen = layer, name, seen
        self.prior, self.batch, self.unbiased = adapter.prior, adapter.batch, adapter.unbiased
        self.mean = adapter.source[f"{name}.running_mean"]
        self.variance = adapter.source[f"{name}.running_var"]

    def forward(self, x: Tensor) -> Tensor:
        images = torch.tensor(float(self.batch)) if self.batch else _count(x)
        share = self.prior / (self.prior + images)
        channels = x.transpose(0, 1).flatten(1)  # [C, values]
        mean = channels.mean(1)
        variance = (channels - mean[:, None]).square().mean(1)
        if self.unbiased:
            values = _count(channels[0])
            variance = variance * (values / (values - 1).clamp(min=1))
        mean, variance = share * self.mean + (1 - share) * mean, share * self.variance + (1 - share) * variance
        self.seen[f"{self.name}.running_mean"], self.seen[f"{self.name}.running_var"] = mean, variance
        shape = [1, -1] + [1] * (x.dim() - 2)
        normed = (x - mean.view(shape)) / (variance.view(shape) + self.layer.eps).sqrt()
        if self.layer.weight is None:
            return normed
        return normed * self.layer.weight.view(shape) + self.layer.bias.view(shape)


def _t3a(adapter: T3A) -> tuple[Step, Params, bool]:
    classes = adapter.head.out_features

    def step(x: Tensor, state: Params) -> tuple[Tensor, Params]:
        z, logits = features(adapter.net, x, adapter.head)
        supports = torch.cat([state["supports"], z])
        labels = torch.cat([state["labels"], logits.argmax(-1)])
        entropies = torch.cat([state["entropies"], entropy(logits)])
        if adapter.keep is not None:  # the rank of each among those of its class: by entropy, then by age
            place = torch.ones_like(labels).cumsum(0)
            less = (entropies < entropies[:, None]) | ((entropies == entropies[:, None]) & (place < place[:, None]))
            rank = (less & (labels == labels[:, None])).sum(1)
            kept = (rank < adapter.keep).nonzero().squeeze(1)
            supports, labels, entropies = supports[kept], labels[kept], entropies[kept]
        weights = F.one_hot(labels, classes).to(z.dtype)
        prototypes = F.normalize(weights.T @ F.normalize(supports, dim=1), dim=1)  # eq. (4) of Iwasawa & Matsuo
        return z @ prototypes.T, {"supports": supports, "labels": labels, "entropies": entropies}

    return step, adapter.state(), True


def _btfl(adapter: BTFL) -> tuple[Step, Params, bool]:
    if adapter.code:
        raise UnsupportedModel("BTFL with preset: code has no ONNX form; preset: paper has one")
    constant, slope, h_bar = (torch.from_numpy(a) for a in (adapter.constant, adapter.slope, adapter.h_bar))
    d = slope.shape[1]

    def step(x: Tensor, state: Params) -> tuple[Tensor, Params]:
        z, g = features(adapter.net, x, adapter.w_g)
        log_y = torch.stack([F.linear(z, adapter.w_p), g]).double().log_softmax(-1)
        h = -(log_y.exp() * log_y).sum(-1)
        z_hat = (z > math.atanh(0.5)).double()  # eq. (5) of Zhou & Liu
        log_q = constant + slope @ z_hat.T
        likelihoods = (1 - h_bar / h.clamp(min=1e-9)).exp() * log_q  # eq. (14)
        e = _shares(state["prior"], (likelihoods[0] - likelihoods[1]) / d)[:, None]  # eq. (15) and (21)
        e = e.clamp(1e-300, 1 - 1e-16)
        mix = torch.stack([e.log() + log_y[1], (1 - e).log() + log_y[0]]).logsumexp(0)  # log (e Y_g + (1 − e) Y_l)
        tau, above, below = log_q[0] - log_q[1], h > h_bar, h < h_bar
        external = ((tau < 0) & above[0] & below[1]).double().sum()  # eq. (10) and (11)
        internal = ((tau > 0) & below[0] & above[1]).double().sum()
        counts = state["prior"] + torch.stack([external, internal])
        total = counts.sum()
        prior = torch.where(total > adapter.lam, 1 + counts / total, counts)  # Algorithm 1
        return mix.to(g.dtype), {"prior": prior}

    return step, {"prior": torch.ones(2, dtype=torch.float64)}, False


def _shares(prior: Tensor, log_tau: Tensor) -> Tensor:
    """`beta.by_quadrature`, of tensors."""
    a, b, u = prior[0], prior[1], torch.from_numpy(beta.NODES)
    t = (a / b).log() + (1 / a + 1 / b).sqrt() * ((u.exp() - (-u).exp()) / 2)
    log_w = a * F.logsigmoid(t) + b * F.logsigmoid(-t)
    w = ((u.exp() + (-u).exp()) / 2) * (log_w - log_w.max()).exp()
    return F.logsigmoid(t - log_tau[:, None]).exp() @ (w / w.sum())


# By exact class: a subclass may do otherwise.
STEPS: dict[type[Adapter], Callable[[Any], tuple[Step, Params, bool]]] = {
    NoAdaptation: _none, EM: _em, BBSE: _bbse, BNAdapt: _bn_adapt, T3A: _t3a, BTFL: _btfl,
}  # fmt: skip


def _count(x: Tensor) -> Tensor:
    """How many rows, as a number that the graph computes."""
    return torch.ones_like(x.flatten(1)[:, 0] if x.dim() > 1 else x).sum()


def _classes(net: nn.Module) -> int:
    linears = [module for module in net.modules() if isinstance(module, nn.Linear)]
    return linears[-1].out_features


def _dynamic(module: Graph) -> dict[str, dict[int, str]]:
    axes = {"images": {0: "batch"}, "logits": {0: "batch"}}
    if module.growing:
        axes |= {name: {0: "held"} for name in module.first} | {f"next.{name}": {0: "kept"} for name in module.first}
    return axes


def _some_images(shape: Sequence[int], count: int) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(count))


def _declare(path: Path, first: Params) -> None:
    """The exporter drops inputs that decide nothing, as a state that every batch makes anew; callers need not know."""
    import onnx

    model = onnx.load(path)
    there, kinds = {one.name for one in model.graph.input}, onnx.TensorProto
    for name, tensor in first.items():
        if name not in there:
            kind = kinds.DOUBLE if tensor.dtype == torch.float64 else kinds.FLOAT
            model.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, list(tensor.shape)))
    onnx.save(model, path)


def _check(adapted: Adapted, path: Path, first: Params, shape: Sequence[int]) -> None:
    """Batch after batch, of several sizes, the graph must answer as the adapter does."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    state = {name: tensor.numpy() for name, tensor in first.items()}
    for count in (4, 7, 1):
        x = _some_images(shape, count)
        logits, *after = session.run(None, {"images": x.numpy(), **state})
        torch.testing.assert_close(torch.from_numpy(logits), adapted(x), rtol=1e-3, atol=1e-4)
        state = dict(zip(first, after, strict=True))
    adapted.reset()


def _need(*packages: str) -> None:
    import importlib.util

    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise UnsupportedModel(f"ONNX needs {', '.join(missing)}: pip install 'acclimate[onnx]'")
