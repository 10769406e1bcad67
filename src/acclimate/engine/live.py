"""The live models of a process, one per architecture: parameters are loaded in place, never a copy per client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from acclimate import params
from acclimate.contracts import Algorithm

Build = Callable[[int | None], nn.Module]


@dataclass(frozen=True)
class Extending:
    """A recipe for models with all that phases add to them, one after another."""

    build: Build
    phases: Sequence[Algorithm[Any, Any]] = ()

    def __call__(self, client: int | None = None) -> nn.Module:
        net = self.build(client)
        for phase in self.phases:
            net = phase.extend(net)
        return net

    def shorter(self) -> Extending:
        """Without what the last phase adds."""
        return Extending(self.build, self.phases[:-1])

    def variant(self, client: int | None) -> int:
        """Which of several kinds of devices a client is (`Build.variant`)."""
        return int(self.build.variant(client)) if hasattr(self.build, "variant") else 0


class Live:
    """Hands out the same module again and again, as new: parameters loaded, everything trainable, in train mode.

    There is one module for each kind of device and each set of names: a model that lacks what later phases have added
    gets a net without it.
    """

    def __init__(self, build: Extending) -> None:
        self._build = build
        self._nets: dict[tuple[int, frozenset[str]], nn.Module] = {}

    def __call__(self, values: Mapping[str, Tensor], client: int | None = None) -> nn.Module:
        key = (self._build.variant(client), frozenset(values))
        if key not in self._nets:
            before = torch.get_rng_state()  # a net is built in the middle of a seeded call: it must eat no draws
            self._nets[key] = self._fitting(values, client)
            torch.set_rng_state(before)
        net = params.load(self._nets[key], values).train()
        for tensor in net.parameters():
            tensor.requires_grad, tensor.grad = True, None
        return net

    def _fitting(self, values: Mapping[str, Tensor], client: int | None) -> nn.Module:
        build = self._build
        net = build(client)
        while build.phases and net.state_dict().keys() != values.keys():
            build = build.shorter()
            net = build(client)
        return net
