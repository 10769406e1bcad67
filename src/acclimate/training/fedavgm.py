"""FedAvgM: federated averaging with server momentum (Hsu et al., 2019, §4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from acclimate.contracts import Replies, Task
from acclimate.options import Decay, Positive
from acclimate.params import Params
from acclimate.training.fedavg import Averaging, Global


class State(NamedTuple):
    """The server's model and its velocity."""

    sent: Global
    v: Params  # of the trainable tensors only: statistics are averaged as in FedAvg


@dataclass(frozen=True)
class FedAvgM(Averaging[State]):
    """The server steps along an exponential sum of the clients' mean updates."""

    beta: Decay = 0.9  # β
    lr: Positive = 1.0  # of the server

    def init(self, task: Task) -> State:
        w = task.start()
        return State(Global(w, 0), {name: w[name] * 0 for name, _ in task.build(None).named_parameters()})

    def broadcast(self, server: State, id: int) -> Global:
        return server.sent

    def server_update(self, server: State, replies: Replies) -> State:
        mean: Params = replies.mean()
        w, round = server.sent
        delta = {name: w[name] - mean[name] for name in server.v}  # Δw = Σ_k (n_k / n) Δw_k
        v = {name: self.beta * server.v[name] + delta[name] for name in server.v}  # v ← β v + Δw
        moved = {name: w[name] - self.lr * v[name] for name in v}  # w ← w − v
        return State(Global({**mean, **moved}, round + 1), v)
