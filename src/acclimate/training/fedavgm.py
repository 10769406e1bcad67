"""FedAvgM: federated averaging with server momentum (Hsu et al., 2019, §4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from acclimate import params
from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.options import Decay, Positive
from acclimate.params import Params
from acclimate.sgd import LocalSGD


class State(NamedTuple):
    """The server's model and its velocity."""

    w: Params
    v: Params  # of the trainable tensors only: statistics are averaged as in FedAvg


@dataclass(frozen=True)
class FedAvgM(Algorithm[State, None]):
    """The server steps along an exponential sum of the clients' mean updates."""

    local: LocalSGD = LocalSGD()
    beta: Decay = 0.9  # β
    lr: Positive = 1.0  # of the server

    def init(self, task: Task) -> State:
        w = task.start()
        return State(w, {name: w[name] * 0 for name, _ in task.build(None).named_parameters()})

    def broadcast(self, server: State, id: int) -> Params:
        return server.w

    def client_update(self, w: Params, state: None, client: Client) -> tuple[Reply, None]:
        net = client.net(w)
        fit = self.local.fit(net, client.train, client.rng)
        return Reply(params.of(net), len(client.train), {"loss": fit.loss}), None

    def server_update(self, server: State, replies: Replies) -> State:
        mean: Params = replies.mean()
        delta = {name: server.w[name] - mean[name] for name in server.v}  # Δw = Σ_k (n_k / n) Δw_k
        v = {name: self.beta * server.v[name] + delta[name] for name in server.v}  # v ← β v + Δw
        moved = {name: server.w[name] - self.lr * v[name] for name in v}  # w ← w − v
        return State({**mean, **moved}, v)

    def export(self, server: State, state: None) -> Knowledge:
        return {"model": server.w}
