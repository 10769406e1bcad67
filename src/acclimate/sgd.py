"""The only local SGD loop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.options import Count, Decay, NonNegative, Positive, PositiveShare
from acclimate.params import Params, clipped

Loss = Callable[[Tensor, Tensor], Tensor]  # of a batch: its images and their labels


class Group(NamedTuple):
    """Tensors that are trained together, with their loss; rates and the like are the loop's unless given.

    Groups with the same loss are stepped together, from one backward pass; one with another loss is stepped after
    those before it, on the same batch: so methods alternate.
    """

    tensors: Mapping[str, Tensor]
    loss: Loss
    lr: float | None = None
    momentum: float | None = None
    weight_decay: float | None = None
    velocity: Params | None = None  # where momentum stands, changed in place: a second fit goes on with it


class Batches(Protocol):
    """What can be trained on: images and what goes with them, batch by batch."""

    def __len__(self) -> int: ...

    def batches(self, size: int, rng: torch.Generator | None = None) -> Iterator[tuple[Tensor, Tensor]]: ...


class Fit(NamedTuple):
    """What came of local training."""

    loss: float  # of the first group: its mean over all examples seen, terms included
    steps: int


def trainable(net: nn.Module) -> Params:
    """The tensors of a model that are not frozen, by name (the tensors themselves)."""
    return {name: tensor for name, tensor in net.named_parameters() if tensor.requires_grad}


def cross_entropy(net: nn.Module) -> Loss:
    """The loss of a plain classifier."""
    return lambda x, y: F.cross_entropy(net(x), y)


@dataclass(frozen=True)
class LocalSGD:
    """Plain SGD over a client's shuffled examples: so many passes (`epochs`), or so many batches (`steps`).

    With `decay` the rate falls with the rounds of the phase: to lr · decay^(round / decay_every).
    """

    lr: Positive = 0.1
    epochs: Count = 1
    batch_size: Count = 20
    momentum: Decay = 0.0
    weight_decay: NonNegative = 0.0
    steps: Count | None = None
    clip: Positive | None = None  # the largest norm of a group's gradient
    decay: PositiveShare = 1.0
    decay_every: Count = 1

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (a misspelt key in an experiment is an error)

    def fit(
        self,
        trained: nn.Module | Sequence[Group],
        examples: Batches,
        rng: torch.Generator | None,
        loss: Loss | None = None,
        *,
        round: int = 0,
        correction: Mapping[str, Tensor] | None = None,
    ) -> Fit:
        """Go down the loss (of a model: cross-entropy unless given), adding `correction` to the gradients.

        Modes are left as they are: whoever freezes a part of a model puts it into eval mode too.
        """
        if isinstance(trained, nn.Module):
            trained = [Group(trainable(trained), loss or cross_entropy(trained))]
        together = {
            id(group.loss): [_Stepper(self, g, round) for g in trained if g.loss is group.loss] for group in trained
        }
        total, seen, steps = 0.0, 0, 0
        for x, y in islice(self._batches(examples, rng), self.steps):
            for number, steppers in enumerate(together.values()):
                value = steppers[0].group.loss(x, y)
                wanted = [tensor for stepper in steppers for tensor in stepper.group.tensors.values()]
                found = iter(torch.autograd.grad(value, wanted, allow_unused=True))
                for stepper in steppers:
                    stepper.step(found, correction)
                if number == 0:
                    total += value.item() * len(y)
            seen, steps = seen + len(y), steps + 1
        return Fit(total / max(seen, 1), steps)

    def rate(self, round: int) -> float:
        """The rate in a round of the phase, the first being 0."""
        return self.lr * self.faded(round)

    def faded(self, round: int) -> float:
        """What is left of every rate in a round."""
        return self.decay ** (round / self.decay_every) if self.decay != 1 else 1.0

    def _batches(self, examples: Batches, rng: torch.Generator | None) -> Iterator[tuple[Tensor, Tensor]]:
        epoch = 0
        while len(examples) and (epoch < self.epochs or self.steps is not None):
            yield from examples.batches(self.batch_size, rng)
            epoch += 1


class _Stepper:
    """SGD's step for one group, as `torch.optim.SGD` does it, without its price for every step of a small model."""

    def __init__(self, loop: LocalSGD, group: Group, round: int) -> None:
        self.group, self.clip = group, loop.clip
        self.lr = (loop.lr if group.lr is None else group.lr) * loop.faded(round)
        self.momentum = loop.momentum if group.momentum is None else group.momentum
        self.weight_decay = loop.weight_decay if group.weight_decay is None else group.weight_decay
        self.velocity: Params = {} if group.velocity is None else group.velocity

    @torch.no_grad()
    def step(self, gradients: Iterator[Tensor | None], correction: Mapping[str, Tensor] | None) -> None:
        """One step; a tensor that the loss does not depend on stays."""
        found = {name: g for name, g in zip(self.group.tensors, gradients, strict=False) if g is not None}
        if correction is not None:
            found = {name: g + correction[name] for name, g in found.items()}
        if self.clip is not None and found:
            found = clipped(found, self.clip)
        for name, g in found.items():
            tensor = self.group.tensors[name]
            if self.weight_decay:
                g = g.add(tensor, alpha=self.weight_decay)
            if self.momentum:
                if name in self.velocity:
                    self.velocity[name].mul_(self.momentum).add_(g)
                else:
                    self.velocity[name] = g.clone()
                g = self.velocity[name]
            tensor.add_(g, alpha=-self.lr)
