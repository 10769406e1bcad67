"""FedAvg: federated averaging (McMahan et al., AISTATS 2017, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from torch import nn

from acclimate import params
from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.params import Params
from acclimate.sgd import LocalSGD, Loss, cross_entropy

S = TypeVar("S")


class Global(NamedTuple):
    """The model that everybody is sent."""

    w: Params
    round: int  # t, of the phase


@dataclass(frozen=True)
class Averaging(Algorithm[S, None]):
    """What all have in common that train the server's model on the clients and send it back whole."""

    local: LocalSGD = LocalSGD()

    def loss(self, net: nn.Module, w: Params) -> Loss:
        """What a client goes down, from the model it was sent."""
        return cross_entropy(net)

    def client_update(self, server: Global, state: None, client: Client) -> tuple[Reply, None]:
        net = client.net(server.w)
        fit = self.local.fit(net, client.train, client.rng, self.loss(net, server.w), round=server.round)  # w_k
        return Reply(params.of(net), len(client.train), {"loss": fit.loss}), None

    @property
    def sends_back(self) -> bool:
        return True

    def expects(self, server: Global, task: Task) -> Params:
        return server.w

    def export(self, server: Global, state: None, client: int) -> Knowledge:
        return {"model": server.w}


@dataclass(frozen=True)
class FedAvg(Averaging[Global]):
    """Average the clients' models, weighted by their number of examples; batch statistics too."""

    def init(self, task: Task) -> Global:
        return Global(task.start(), 0)  # w_0

    def server_update(self, server: Global, replies: Replies) -> Global:
        return Global(replies.mean(), server.round + 1)  # w_{t+1} = Σ_k (n_k / n) w_k
