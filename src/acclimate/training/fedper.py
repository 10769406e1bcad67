"""FedPer: federated learning with personalisation layers (Arivazhagan et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from acclimate import params
from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.models.head import head_of
from acclimate.params import Params
from acclimate.sgd import LocalSGD


@dataclass(frozen=True)
class FedPer(Algorithm[Params, Params]):
    """Average the body (W_B) and keep the head (W_P) on the client."""

    local: LocalSGD = LocalSGD()

    def personal(self, net: nn.Module) -> set[str]:
        """The names of the tensors that never leave a client."""
        head = head_of(net)[1]
        own = {id(tensor) for tensor in head.parameters()}
        return {name for name, tensor in net.named_parameters() if id(tensor) in own}

    def init(self, task: Task) -> Params:
        w, own = task.start(), self.personal(task.build(None))
        return params.select(w, lambda name: name not in own)  # W_B

    def client_init(self, client: Client) -> Params:
        w, own = client.task.start(client.id), self.personal(client.task.build(client.id))
        return params.select(w, own.__contains__)  # W_P of this client

    def client_update(self, body: Params, own: Params, client: Client) -> tuple[Reply, Params]:
        net = client.net({**body, **own})
        fit = self.local.fit(net, client.train, client.rng)
        after = params.of(net)
        reply = Reply({name: after[name] for name in body}, len(client.train), {"loss": fit.loss})
        return reply, {name: after[name] for name in own}

    def server_update(self, body: Params, replies: Replies) -> Params:
        mean: Params = replies.mean()
        return mean

    def export(self, body: Params, own: Params | None) -> Knowledge:
        return {} if own is None else {"model": {**body, **own}}
