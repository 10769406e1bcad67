"""Replies that say little of a client: clipped, and with noise, before they leave it (local differential privacy).

The noise is that of the analytic Gaussian mechanism (Balle & Wang, ICML 2018). T replies of one client are together one
of a mechanism √T times as sensitive, exactly, since all noise is Gaussian: so ε and δ are of the whole phase.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from acclimate.contracts import Client, Knowledge, Newcomer, Reply
from acclimate.errors import ConfigError
from acclimate.options import Count, OpenShare, Positive
from acclimate.params import Params, cast
from acclimate.privacy import unit_noise
from acclimate.training.around import Around
from acclimate.trees import Nest


class Spending(NamedTuple):
    """What stays on a client: the state of the phase inside, and how many replies it has sent."""

    of: Nest
    replies: int


@dataclass(frozen=True)
class Private(Around[Any, Spending]):
    """The phase `of`, whose replies are a model; none is further than C from the one that was sent.

    With ε, whatever a client's data are, all its replies together are (ε, δ)-private: noise covers every number, every
    client counts the same, and losses and counters stay at home. What a test exchanges is not covered.
    """

    norm: Positive = 1.0  # C, over all numbers of a reply together
    epsilon: Positive | None = None  # ε; none: replies are clipped and nothing else
    delta: OpenShare = 1e-5  # δ
    replies: Count | None = None  # T: no client sends more; ε is for all of them together

    def __post_init__(self) -> None:
        if not self.of.sends_back:
            raise ValueError(
                f"of: replies of {type(self.of).__name__} are not the model it was sent, moved; "
                "expected a phase such as fedavg, fedprox or fedper"
            )
        if self.epsilon is not None and self.replies is None:
            raise ValueError(
                "replies: epsilon is for all replies of a client together; say how many these are at most "
                "(the number of rounds, where everybody takes part in each)"
            )

    def client_init(self, client: Client) -> Spending:
        return Spending(self.of.client_init(client), 0)

    def client_update(self, message: Any, state: Spending, client: Client) -> tuple[Reply, Spending]:
        if self.epsilon is not None and state.replies == self.replies:
            raise ConfigError(
                [f"a client has sent the {self.replies} replies that epsilon is for, and sends no more; "
                 "raise 'replies', which adds noise to each, or train for fewer rounds"], "private",
            )  # fmt: skip
        reply, after = self.of.client_update(message, state.of, client)
        sent: Params = self.of.expects(message, client.task)
        near = clipped(reply.update, sent, self.norm)
        if self.epsilon is not None:
            reply = Reply(hidden(near, sent, self.sigma, client.secret))
        else:
            reply = reply._replace(update=near)
        return reply, Spending(after, state.replies + 1)

    @property
    def sigma(self) -> float:
        """σ of the noise on each number; two replies are at most 2 C apart."""
        if self.epsilon is None or self.replies is None:
            return 0.0
        return unit_noise(self.epsilon, self.delta) * 2 * self.norm * math.sqrt(self.replies)

    def welcome(self, released: Any, newcomer: Newcomer) -> Spending:
        return Spending(self.of.welcome(released, newcomer), 0)

    def export(self, released: Any, state: Spending | None, client: int) -> Knowledge:
        return self.of.export(released, None if state is None else state.of, client)


def clipped(update: Params, sent: Params, most: float) -> Params:
    """What was sent + Δ / max(1, ‖Δ‖ / C); within C, the same bits."""
    moved = {name: update[name].double() - tensor.double() for name, tensor in sent.items()}  # Δ
    numbers = [delta for name, delta in moved.items() if sent[name].is_floating_point()]
    norm = float(torch.stack([delta.norm() for delta in numbers]).norm()) if numbers else 0.0
    if norm <= most:
        return update
    return {
        name: cast(sent[name].double() + most / norm * delta, sent[name].dtype)
        if sent[name].is_floating_point()
        else update[name]
        for name, delta in moved.items()
    }


def hidden(update: Params, sent: Params, sigma: float, secret: torch.Generator) -> Params:
    """With noise on every number; counters stay as they were sent, and no variance falls below zero."""
    found = {}
    for name, tensor in update.items():
        if not tensor.is_floating_point():
            found[name] = sent[name]
            continue
        noise = torch.randn(tensor.shape, generator=secret, dtype=torch.float64)
        noisy = tensor.double() + sigma * noise
        found[name] = cast(noisy.clamp(min=0) if name.endswith("running_var") else noisy, tensor.dtype)
    return found
