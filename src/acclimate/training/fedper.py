"""FedPer: federated learning with personalisation layers (Arivazhagan et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from acclimate import params
from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.models.head import head_names
from acclimate.params import Params
from acclimate.sgd import Fit, LocalSGD
from acclimate.training.fedavg import Global


@dataclass(frozen=True)
class FedPer(Algorithm[Global, Params]):
    """Average the body (W_B) and keep the head (W_P) on the client."""

    personal = ("model",)

    local: LocalSGD = LocalSGD()

    def stays(self, net: nn.Module) -> set[str]:
        """The names of the tensors that never leave a client."""
        return head_names(net)

    def fit(self, net: nn.Module, client: Client, round: int) -> Fit:
        """A client's training in one round."""
        return self.local.fit(net, client.train, client.rng, round=round)

    def init(self, task: Task) -> Global:
        w, own = task.start(), self.stays(task.build(None))
        return Global(params.select(w, lambda name: name not in own), 0)  # W_B

    def client_init(self, client: Client) -> Params:
        w = client.start()
        own = self.stays(client.net(w))
        return params.select(w, own.__contains__)  # W_P of this client

    def client_update(self, server: Global, own: Params, client: Client) -> tuple[Reply, Params]:
        net = client.net({**server.w, **own})
        fit = self.fit(net, client, server.round)
        after = params.of(net)
        reply = Reply({name: after[name] for name in server.w}, len(client.train), {"loss": fit.loss})
        return reply, {name: after[name] for name in own}

    @property
    def sends_back(self) -> bool:
        return True

    def expects(self, server: Global, task: Task) -> Params:
        return server.w

    def server_update(self, server: Global, replies: Replies) -> Global:
        return Global(replies.mean(), server.round + 1)

    def export(self, server: Global, own: Params | None, client: int) -> Knowledge:
        return {} if own is None else {"model": {**server.w, **own}}
