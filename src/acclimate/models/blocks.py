"""The blocks of any model: which parameters surgical fine-tuning moves together."""

from __future__ import annotations

import re

from torch import nn
from torch.nn.modules.conv import _ConvNd

from acclimate.errors import UnsupportedModel

_STAGE = re.compile(r".*(layer|stage|block)_?\d+")


def blocks(net: nn.Module) -> dict[str, list[str]]:
    """The names of all parameters in blocks, each called after its first layer, in the model's order.

    A convolution or linear layer opens a block, and what follows without opening one, such as its norm, joins it. A
    submodule whose name ends like layer1, stage2 or block_3 is one block altogether. The last linear layer, the head,
    is the last block, alone.

    >>> blocks(nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)))
    {'0': ['0.weight', '1.weight', '1.bias'], '3': ['3.weight', '3.bias']}
    """
    heads = [name for name, module in net.named_modules() if isinstance(module, nn.Linear)]
    found: dict[str, list[str]] = {}
    head: list[str] = []
    current = ""
    for name, _ in net.named_parameters():
        owner = name.rpartition(".")[0]
        if heads and owner == heads[-1]:
            head.append(name)
            continue
        if stage := _stage(owner):
            current = stage
        elif not current or isinstance(net.get_submodule(owner), _ConvNd | nn.Linear):
            current = owner or "input"
        found.setdefault(current, []).append(name)
    if head:
        found[heads[-1]] = head
    if not found:
        raise UnsupportedModel(
            f"{type(net).__name__} has no parameters, so it has no blocks; use another method (none)"
        )
    return found


def _stage(owner: str) -> str:
    """The part of a layer's name up to its stage, if it is in one."""
    parts = owner.split(".")
    for depth, part in enumerate(parts, 1):
        if _STAGE.fullmatch(part):
            return ".".join(parts[:depth])
    return ""
