"""Arithmetic on named tensors: the weights and statistics of a model, or anything shaped like them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

Params = dict[str, Tensor]


def of(net: nn.Module) -> Params:
    """All parameters and persistent buffers of `net`, copied.

    The copies are contiguous whatever the layout of the model, so that reductions over them give the same
    bits before and after a trip through a file or another process.
    """
    return {name: copy(tensor) for name, tensor in net.state_dict().items()}


def copy(tensor: Tensor) -> Tensor:
    """A detached contiguous copy."""
    return tensor.detach().clone(memory_format=torch.contiguous_format)


def load(net: nn.Module, params: Mapping[str, Tensor]) -> nn.Module:
    """Copy `params` into `net` in place; the names must be exactly those of `of(net)`."""
    own = net.state_dict()
    if own.keys() != params.keys():
        missing, extra = sorted(own.keys() - params.keys()), sorted(params.keys() - own.keys())
        raise ValueError(f"parameters do not fit {type(net).__name__}: missing {missing}, unknown {extra}")
    assign(own, params)
    return net


def assign(targets: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy `values` into the tensors of the same names, in place."""
    with torch.no_grad():
        for name, tensor in targets.items():
            if tensor.shape != values[name].shape:  # copy_ would stretch it
                raise ValueError(f"'{name}' has shape {list(tensor.shape)}; found {list(values[name].shape)}")
            tensor.copy_(values[name])


def gradients(loss: Tensor, tensors: Mapping[str, Tensor]) -> Params:
    """∇ of a loss with respect to each tensor; zeros where the loss does not depend on one."""
    found = torch.autograd.grad(loss, list(tensors.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(tensors, found, strict=True))


def descend(
    loss: Tensor, tensors: Mapping[str, Tensor], lr: float, weight_decay: float = 0.0, clip: float | None = None
) -> None:
    """One gradient step on the tensors, in place."""
    step(tensors, gradients(loss, tensors), lr, weight_decay, clip)


@torch.no_grad()
def step(
    tensors: Mapping[str, Tensor],
    gradients: Mapping[str, Tensor],
    lr: float,
    weight_decay: float = 0.0,
    clip: float | None = None,
) -> None:
    """Move the tensors along given gradients; `clip` is the largest norm of these, before the decay is added."""
    found = gradients if clip is None else clipped(gradients, clip)
    for name, tensor in tensors.items():
        down = found[name].add(tensor, alpha=weight_decay) if weight_decay else found[name]
        tensor -= lr * down


def clipped(gradients: Mapping[str, Tensor], most: float) -> Params:
    """The gradients, shortened to a norm of at most `most` over all of them together.

    >>> clipped({"a": torch.tensor([3.0]), "b": torch.tensor([4.0])}, 10.0)
    {'a': tensor([3.]), 'b': tensor([4.])}
    """
    norm = torch.stack([g.norm() for g in gradients.values()]).norm()
    scale = (most / (norm + 1e-6)).clamp(max=1.0)
    return {name: g * scale for name, g in gradients.items()}


def select(params: Mapping[str, Tensor], keep: Callable[[str], bool]) -> Params:
    """The entries whose name is kept."""
    return {name: tensor for name, tensor in params.items() if keep(name)}


def add(a: Mapping[str, Tensor], b: Mapping[str, Tensor], scale: float = 1.0) -> Params:
    """A + scale * b, name by name."""
    return {name: tensor + scale * b[name] for name, tensor in a.items()}


def sub(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Params:
    """A - b, name by name."""
    return {name: tensor - b[name] for name, tensor in a.items()}


def zeros_like(a: Mapping[str, Tensor]) -> Params:
    """Zeros of the same shapes."""
    return {name: torch.zeros_like(tensor) for name, tensor in a.items()}


def dot(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> Tensor:
    """The inner product over all entries.

    >>> float(dot({"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([3.0, 4.0])}))
    11.0
    """
    return torch.stack([(tensor * b[name]).sum() for name, tensor in a.items()]).sum()


def cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Back from float64 to `dtype`; integers (such as batch counters) are rounded, not cut."""
    return value.to(dtype) if dtype.is_floating_point else value.round().to(dtype)
