"""Normalisation layers of any model: finding them, their parameters and statistics, and whose statistics they use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from acclimate.errors import UnsupportedModel
from acclimate.params import Params

NORMS = (_BatchNorm, nn.GroupNorm, nn.LayerNorm, nn.InstanceNorm1d, nn.InstanceNorm2d)


def norm_layers(net: nn.Module, method: str) -> dict[str, nn.Module]:
    """All normalisation layers by name."""
    found: dict[str, nn.Module] = {n: m for n, m in net.named_modules() if isinstance(m, NORMS)}
    if not found:
        raise _unsupported(net, method, "normalisation")
    return found


def batch_norms(net: nn.Module, method: str) -> dict[str, _BatchNorm]:
    """All batch-normalisation layers that track running statistics, by name."""
    found = {
        name: module
        for name, module in net.named_modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
    }
    if not found:
        raise _unsupported(net, method, "batch-normalisation")
    return found


def affine(layers: dict[str, nn.Module]) -> Params:
    """The scales and shifts of layers, by full name (the tensors themselves)."""
    return {f"{name}.{n}": p for name, layer in layers.items() for n, p in layer.named_parameters(recurse=False)}


def statistics(layers: dict[str, _BatchNorm]) -> Params:
    """The running means and variances of layers, by full name (the tensors themselves)."""
    return {
        f"{name}.{n}": layer.get_buffer(n) for name, layer in layers.items() for n in ("running_mean", "running_var")
    }


def batch_moments(x: Tensor, unbiased: bool = True) -> tuple[Tensor, Tensor]:
    """Mean and variance per channel of a layer's input.

    >>> batch_moments(torch.tensor([[1.0], [3.0]]))
    (tensor([2.]), tensor([2.]))
    """
    # The kernel of batch norms themselves: twenty times faster here than torch.var_mean over channels-last images.
    mean, variance = torch.batch_norm_update_stats(x, None, None, 0.0)
    count = x.numel() // x.shape[1]
    return mean, variance * (count / (count - 1)) if unbiased and count > 1 else variance


@contextmanager
def before_each(layers: dict[str, _BatchNorm], do: Callable[[str, _BatchNorm, Tensor], None]) -> Iterator[None]:
    """Call `do(name, layer, input)` just before each layer runs."""

    def hook_for(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            assert isinstance(layer, _BatchNorm)
            do(name, layer, inputs[0])

        return hook

    hooks = [layer.register_forward_pre_hook(hook_for(name)) for name, layer in layers.items()]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def batch_statistics(net: nn.Module, images: int) -> Iterator[None]:
    """Let batch norms normalise with the batch, leaving their running statistics alone.

    A single image has no statistics of its own: then the running ones are used as ever.
    """
    layers = [module for module in net.modules() if isinstance(module, _BatchNorm) and images > 1]
    before = [(layer.training, layer.track_running_stats, layer.running_mean, layer.running_var) for layer in layers]
    for layer in layers:
        # Without buffers a batch norm uses the batch, in eval mode too, and counts nothing.
        layer.training, layer.track_running_stats, layer.running_mean, layer.running_var = (
            False,
            False,
            None,
            None,
        )
    try:
        yield
    finally:
        for layer, old in zip(layers, before, strict=True):
            layer.training, layer.track_running_stats, layer.running_mean, layer.running_var = old


def _unsupported(net: nn.Module, method: str, kind: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"'{method}' adapts {kind} layers and {type(net).__name__} has none; use a model with them "
        "(shallow-cnn) or a method that needs none (none, em, bbse, t3a)"
    )
