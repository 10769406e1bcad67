"""A federated linear classifier on a frozen encoder, as in FedICON (Tan et al., FLData-Mining at KDD 2023, §3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from acclimate import params
from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.models.head import head_names, head_of
from acclimate.params import Params
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import Global


class Split(NamedTuple):
    """A model in two parts."""

    head: Params  # what is trained, and all that travels
    body: Params  # θ̄, which clients have from earlier phases
    round: int


@dataclass(frozen=True)
class Head(Algorithm[Split, None]):
    """Average the heads that clients train on the model they know, which stays as it is, batch statistics too.

    An encoder trained by contrast has features of length about one, on which a head wants a rate near one.
    """

    needs = ("model",)

    local: LocalSGD = LocalSGD(lr=0.01, batch_size=32, weight_decay=5e-4)

    def init(self, task: Task) -> Split:
        w, own = task.start(), head_names(task.build(None))
        return Split(params.select(w, own.__contains__), params.select(w, lambda name: name not in own), 0)

    def broadcast(self, server: Split, id: int) -> Global:
        return Global(server.head, server.round)

    def client_update(self, server: Global, state: None, client: Client) -> tuple[Reply, None]:
        net = client.net({**client.known["model"], **server.w}).requires_grad_(False).eval()
        head_of(net)[1].requires_grad_(True)
        fit = self.local.fit(net, client.train, client.rng, round=server.round)
        after = params.of(net)
        return Reply({name: after[name] for name in server.w}, len(client.train), {"loss": fit.loss}), None

    @property
    def sends_back(self) -> bool:
        return True

    def expects(self, server: Global, task: Task) -> Params:
        return server.w

    def server_update(self, server: Split, replies: Replies) -> Split:
        return Split(replies.mean(), server.body, server.round + 1)

    def release(self, server: Split, id: int) -> Global:
        return Global({**server.body, **server.head}, server.round)

    def export(self, server: Global, state: None, client: int) -> Knowledge:
        return {"model": server.w}
