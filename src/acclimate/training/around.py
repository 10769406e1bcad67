"""A phase around another: whatever it does not say itself, the phase inside says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import nn

from acclimate.contracts import Algorithm, Client, Knowledge, Newcomer, Replies, Reply, Task
from acclimate.training.fedavg import FedAvg
from acclimate.trees import Nest

S = TypeVar("S")
C = TypeVar("C")


@dataclass(frozen=True)
class Around(Algorithm[S, C]):
    """The phase `of`, as it is."""

    of: Algorithm[Any, Any] = field(default_factory=FedAvg, kw_only=True)

    @property
    def keeps(self) -> bool:
        return self.of.keeps

    @property
    def needs(self) -> tuple[str, ...]:
        return self.of.needs

    @property
    def exports(self) -> tuple[str, ...]:
        return self.of.exports

    @property
    def personal(self) -> tuple[str, ...]:
        return self.of.personal

    @property
    def welcomes(self) -> bool:
        return self.of.welcomes

    @property
    def sends_back(self) -> bool:
        return self.of.sends_back

    def extend(self, net: nn.Module) -> nn.Module:
        return self.of.extend(net)

    def init(self, task: Task) -> Any:
        return self.of.init(task)

    def broadcast(self, server: Any, id: int) -> Any:
        return self.of.broadcast(server, id)

    def expects(self, message: Any, task: Task) -> Nest:
        return self.of.expects(message, task)

    def server_update(self, server: Any, replies: Replies) -> Any:
        return self.of.server_update(server, replies)

    def release(self, server: Any, id: int) -> Any:
        return self.of.release(server, id)

    def client_init(self, client: Client) -> Any:
        return self.of.client_init(client)

    def client_update(self, message: Any, state: Any, client: Client) -> tuple[Reply, Any]:
        return self.of.client_update(message, state, client)

    def welcome(self, released: Any, newcomer: Newcomer) -> Any:
        return self.of.welcome(released, newcomer)

    def export(self, released: Any, state: Any, client: int) -> Knowledge:
        return self.of.export(released, state, client)
