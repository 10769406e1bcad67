"""PFL-Sampled: new clients get somebody's personal model (Ye et al., SDM 2024, §4.1, on FedPer)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.params import Params
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import Global
from acclimate.training.fedper import FedPer


class State(NamedTuple):
    """FedPer's body, and the heads as clients sent them last."""

    body: Global
    heads: dict[int, Params]


class Released(NamedTuple):
    """A model for whoever has no head: the body, and heads to choose from or to mix."""

    body: Params
    heads: list[Params]


@dataclass(frozen=True)
class KeptHeads(Algorithm[State, Params]):
    """FedPer whose clients also send their heads, which the server keeps: costly, and telling of those who trained."""

    keeps = True
    personal = ("model",)

    local: LocalSGD = LocalSGD()

    @property
    def inner(self) -> FedPer:
        """How everybody trains."""
        return FedPer(self.local)

    def init(self, task: Task) -> State:
        return State(self.inner.init(task), {})

    def broadcast(self, server: State, id: int) -> Global:
        return server.body

    def client_init(self, client: Client) -> Params:
        return self.inner.client_init(client)

    def client_update(self, body: Global, own: Params, client: Client) -> tuple[Reply, Params]:
        reply, own = self.inner.client_update(body, own, client)
        return Reply((reply.update, own), reply.weight, reply.metrics), own

    def expects(self, body: Global, task: Task) -> tuple[Params, Params]:
        net = task.build(None)
        own = self.inner.stays(net)
        return body.w, {name: tensor for name, tensor in net.state_dict().items() if name in own}

    def server_update(self, server: State, replies: Replies) -> State:
        heads = {id: reply.update[1] for id, reply in replies.items()}
        return State(Global(replies.mean()[0], server.body.round + 1), {**server.heads, **heads})


@dataclass(frozen=True)
class PFLSampled(KeptHeads):
    """FedPer; a new client is given the head of one training client, drawn for it. Who trained keeps its own."""

    def release(self, server: State, id: int) -> Released:
        heads = list(server.heads.values())
        drawn = int(torch.randint(max(len(heads), 1), ()))
        return Released(server.body.w, heads[drawn : drawn + 1])

    def export(self, released: Released, own: Params | None, client: int) -> Knowledge:
        heads = [own] if own is not None else released.heads
        return {"model": {**released.body, **heads[0]}} if heads else {}
