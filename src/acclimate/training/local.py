"""Nobody shares anything: each client trains alone, as in a phase of which it is the only client."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.training.fedavg import FedAvg
from acclimate.trees import Nest


class Alone(NamedTuple):
    """A client that is its own server."""

    server: Nest
    own: Nest  # what it keeps as a client


@dataclass(frozen=True)
class Local(Algorithm[Tensor, Alone]):
    """The phase `of`, played by every client by itself; it starts from the model that this client has, else a fresh
    one of its own. Whoever never took part has nothing of it.
    """  # noqa: D205

    of: Algorithm[Any, Any] = field(default_factory=FedAvg)

    @property
    def needs(self) -> tuple[str, ...]:
        return self.of.needs

    @property
    def exports(self) -> tuple[str, ...]:
        return self.of.exports

    @property
    def personal(self) -> tuple[str, ...]:
        return self.of.exports

    def extend(self, net: nn.Module) -> nn.Module:
        return self.of.extend(net)

    def init(self, task: Task) -> Tensor:
        return torch.zeros((), dtype=torch.float64)  # rounds so far: all that the server knows

    def client_init(self, client: Client) -> Alone:
        task = replace(client.task, source=(client.id,), known=client.known)
        return Alone(self.of.init(task), self.of.client_init(client))

    def client_update(self, rounds: Tensor, state: Alone, client: Client) -> tuple[Reply, Alone]:
        reply, own = self.of.client_update(self.of.broadcast(state.server, client.id), state.own, client)
        replies = Replies(self.of.keeps)
        replies.add(client.id, reply)
        # What is not finite is not taken into account, as in any phase.
        server = self.of.server_update(state.server, replies) if replies.weight > 0 else state.server
        return Reply({}, reply.weight, reply.metrics), Alone(server, own)

    def expects(self, rounds: Tensor, task: Task) -> Nest:
        return {}

    def server_update(self, rounds: Tensor, replies: Replies) -> Tensor:
        return rounds + 1

    def export(self, rounds: Tensor, state: Alone | None, client: int) -> Knowledge:
        if state is None:
            return {}
        return self.of.export(self.of.release(state.server, client), state.own, client)
