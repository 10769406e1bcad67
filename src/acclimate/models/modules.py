"""The modules of a model in ATP's sense, how a batch would move each, and how a loss depends on each.

A module is one parameter tensor, one running mean or one running variance (Bao et al., NeurIPS 2023, §4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from acclimate import params
from acclimate.losses import entropy
from acclimate.models.norms import batch_moments, before_each
from acclimate.params import Params

Kinds = Literal["all", "params", "stats"]


class Modules:
    """Every module of a model by name, layer by layer; of a batch norm its statistics first. The model is in eval mode.

    What is there now counts as the source: `move` starts from it and `restore` goes back to it.
    """

    def __init__(self, net: nn.Module, kinds: Kinds = "all") -> None:
        self.net = net.requires_grad_(True).eval()
        tracking = {n: m for n, m in net.named_modules() if isinstance(m, _BatchNorm) and m.running_mean is not None}
        self.layers: dict[str, _BatchNorm] = {} if kinds == "params" else tracking
        self.tensors: Params = {}
        for prefix, layer in net.named_modules():
            if prefix in self.layers:
                self.tensors |= {f"{prefix}.{n}": layer.get_buffer(n) for n in ("running_mean", "running_var")}
            if kinds != "stats":
                self.tensors |= dict(layer.named_parameters(prefix, recurse=False))
        self.source = {name: params.copy(tensor) for name, tensor in self.tensors.items()}

    def directions(self, x: Tensor, unbiased: bool = True) -> Params:
        """Where an unlabelled batch would move every module (h), at the model as it is now.

        Parameters: −∇ of the mean entropy. Statistics: those of the layer's input in the same pass minus the running.
        """
        h: Params = {}

        def observe(name: str, layer: _BatchNorm, entering: Tensor) -> None:
            mean, variance = batch_moments(entering.detach(), unbiased)
            h[f"{name}.running_mean"] = mean - layer.get_buffer("running_mean")  # eq. (5)
            h[f"{name}.running_var"] = variance - layer.get_buffer("running_var")

        trained = {name: tensor for name, tensor in self.tensors.items() if tensor.requires_grad}
        with torch.set_grad_enabled(bool(trained)), before_each(self.layers, observe):
            logits = self.net(x)
        if trained:
            h |= {name: -g for name, g in params.gradients(entropy(logits).mean(), trained).items()}  # eq. (4)
        return {name: h[name] for name in self.tensors}

    def gradients(self, x: Tensor, y: Tensor) -> tuple[Params, float]:
        """∇ of the cross-entropy with respect to every module at the model as it is now, and the loss.

        The fused kernel has no gradient for running statistics, but theirs follow from those of shift and scale:
        ∂L/∂μ = −γ/√(σ²+ε) · ∂L/∂β and ∂L/∂σ² = −γ/(2(σ²+ε)) · ∂L/∂γ.
        """
        wanted = {name: tensor for name, tensor in self.tensors.items() if tensor.requires_grad}
        with torch.enable_grad(), _affine_everywhere(self.layers):
            scales = {f"{name}.weight": layer.weight for name, layer in self.layers.items()}
            scales |= {f"{name}.bias": layer.bias for name, layer in self.layers.items()}
            loss = F.cross_entropy(self.net(x), y)
            found = params.gradients(loss, {**wanted, **scales})
            for name, layer in self.layers.items():
                gamma, spread = layer.weight.detach(), layer.get_buffer("running_var") + layer.eps
                found[f"{name}.running_mean"] = -gamma * spread.rsqrt() * found[f"{name}.bias"]
                found[f"{name}.running_var"] = -gamma / (2 * spread) * found[f"{name}.weight"]
        return {name: found[name] for name in self.tensors}, loss.item()

    @torch.no_grad()
    def move(self, rates: Mapping[str, Tensor], h: Mapping[str, Tensor], floor: float = 0.0) -> None:
        """Set every module to source + rate · h (eq. (6)); variances stay at or above `floor`."""
        for name, tensor in self.tensors.items():
            tensor.copy_(self.source[name] + rates[name] * h[name])
            if name.endswith(".running_var"):
                tensor.clamp_(min=floor)

    def restore(self) -> None:
        """Back to the source."""
        params.assign(self.tensors, self.source)


@contextmanager
def _affine_everywhere(layers: Mapping[str, _BatchNorm]) -> Iterator[None]:
    """Lend scale one and shift zero to layers without, so that the kernel computes their gradients."""
    plain = [layer for layer in layers.values() if layer.weight is None]
    for layer in plain:
        mean = layer.get_buffer("running_mean")
        layer.weight, layer.bias = nn.Parameter(torch.ones_like(mean)), nn.Parameter(torch.zeros_like(mean))
    try:
        yield
    finally:
        for layer in plain:
            layer.weight = layer.bias = None  # type: ignore[assignment]
