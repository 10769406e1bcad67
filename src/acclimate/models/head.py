"""The head of any classifier, and the features that enter it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call

from acclimate.errors import UnsupportedModel
from acclimate.models.extended import is_extra


def head_of(net: nn.Module, name: str | None = None) -> tuple[str, nn.Linear]:
    """The last `nn.Linear` of a model with its name, or the one named; what a method has added does not count.

    >>> head_of(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))[0]
    '2'
    """
    linears = {n: m for n, m in net.named_modules() if isinstance(m, nn.Linear) and not is_extra(n)}
    if name is not None and name not in linears:
        raise UnsupportedModel(
            f"{type(net).__name__} has no linear layer '{name}'; it has: {', '.join(linears) or 'none'}"
        )
    if not linears:
        raise UnsupportedModel(
            f"{type(net).__name__} has no nn.Linear layer, so it has no head; end the model in one, or use a "
            "method that needs no head (none, bn-adapt, tent, em)"
        )
    chosen = name or list(linears)[-1]
    return chosen, linears[chosen]


def head_names(net: nn.Module) -> set[str]:
    """The names of the head's tensors.

    >>> sorted(head_names(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))))
    ['1.bias', '1.weight']
    """
    own = {id(tensor) for tensor in head_of(net)[1].parameters()}
    return {name for name, tensor in net.named_parameters() if id(tensor) in own}


def features(
    net: nn.Module, x: Tensor, head: nn.Linear | None = None, given: Mapping[str, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """The head's input and the logits of a batch; `given` are tensors to use instead of the model's own."""
    seen: list[Tensor] = []
    layer = head or head_of(net)[1]
    hook = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        logits = net(x) if given is None else functional_call(net, dict(given), (x,))
    finally:
        hook.remove()
    return seen[-1], logits


@torch.no_grad()
def signature(net: nn.Module, x: Tensor) -> Tensor:
    """The mean feature of a batch: how a frozen model sees the place the batch comes from."""
    return features(net, x)[0].flatten(1).mean(0)
