"""Clients that lie, for experiments: they train and adapt like everybody, and send something else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from acclimate.options import Share
from acclimate.trees import Nest, flatten, unflatten

Attack = Literal["sign", "scaled", "huge", "negative-variance", "replayed", "labels", "colluding"]


@dataclass(frozen=True)
class Hostile:
    """A share of the clients, drawn from the seed, that attack in training and in exchanges.

    sign: the opposite of what they changed; scaled and huge: 100 and 1e30 times it; negative-variance: variances with a
    minus; replayed: what they were sent, or had at the start, again; labels: they train on turned labels (c becomes
    classes − 1 − c) and are honest otherwise; colluding: all of them the same noise around what they were sent.
    """

    share: Share = 0.0
    attack: Attack = "sign"

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (a misspelt key in an experiment is an error)

    def among(self, ids: Iterable[int], seed: int) -> frozenset[int]:
        """Which of these clients are hostile."""
        everybody = sorted(set(ids))
        count = math.ceil(self.share * len(everybody) - 1e-9)
        return frozenset(np.random.default_rng([seed, 13]).permutation(everybody)[:count].tolist())

    def lie(self, honest: Nest, sent: Nest, *place: Any) -> Nest:
        """What is sent instead of `honest`, by somebody who was sent `sent`; the same for all at one `place`."""
        tensors, skeleton = flatten(honest)
        before = [tensor.to(own.dtype) for tensor, own in zip(flatten(sent)[0], tensors, strict=True)]
        if self.attack == "negative-variance":
            names = _names(honest)
            lies = [-own if name.endswith("running_var") else own for name, own in zip(names, tensors, strict=True)]
        elif self.attack == "colluding":
            rng = torch.Generator().manual_seed(hash(place) % 2**63)
            lies = [_noisy(own, rng) for own in before]
        else:
            factor = {"sign": -1.0, "scaled": 100.0, "huge": 1e30, "replayed": 0.0, "labels": 1.0}[self.attack]
            lies = [_along(own, tensor, factor) for own, tensor in zip(before, tensors, strict=True)]
        return unflatten(lies, skeleton)


NOBODY = Hostile()


def _along(start: Tensor, end: Tensor, factor: float) -> Tensor:
    """Start + factor (end − start); counters stay as they are."""
    if factor == 1.0 or not end.is_floating_point():
        return end
    return (start.double() + factor * (end.double() - start.double())).to(end.dtype)


def _noisy(tensor: Tensor, rng: torch.Generator) -> Tensor:
    """A tensor with noise half as large as its numbers are; none below zero where none was."""
    if not tensor.is_floating_point() or not tensor.numel():
        return tensor
    noise = torch.randn(tensor.shape, generator=rng, dtype=torch.float64) * 0.5 * tensor.double().abs().mean()
    changed = tensor.double() + noise
    return (changed.abs() if bool((tensor >= 0).all()) else changed).to(tensor.dtype)


def _names(nest: Nest) -> list[str]:
    """The name of each tensor of a nest, in order; '' where it has none."""
    if isinstance(nest, Tensor):
        return [""]
    if isinstance(nest, Mapping):
        return [inner or str(name) for name, item in nest.items() for inner in _names(item)]
    return [name for item in nest for name in _names(item)] if isinstance(nest, tuple | list) else []
