"""SCAFFOLD: stochastic controlled averaging (Karimireddy et al., ICML 2020, Algorithm 1, option II)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from acclimate import params
from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.options import Positive
from acclimate.params import Params
from acclimate.sgd import LocalSGD


class State(NamedTuple):
    """The server's model and control variate."""

    x: Params
    c: Params
    clients: int  # N
    round: int  # of the phase


@dataclass(frozen=True)
class Scaffold(Algorithm[State, Params | None]):
    """Correct every local gradient by c − c_i, the difference of the server's and the client's drift.

    The paper's local steps are plain SGD; with momentum or weight decay c_i no longer estimates a gradient,
    so keep both at zero. Batch statistics have no drift and are averaged.
    """

    local: LocalSGD = LocalSGD()
    lr: Positive = 1.0  # η_g

    def init(self, task: Task) -> State:
        x = task.start()
        c = {name: x[name] * 0 for name, _ in task.build(None).named_parameters()}
        return State(x, c, len(task.source), 0)

    def client_update(self, server: State, c_i: Params | None, client: Client) -> tuple[Reply, Params]:
        net, c_i = client.net(server.x), c_i or params.zeros_like(server.c)  # c_i = 0 at first
        fit = self.local.fit(net, client.train, client.rng, round=server.round, correction=params.sub(server.c, c_i))
        y = params.of(net)
        step = fit.steps * self.local.rate(server.round)  # K η_l
        c_new = {k: (c_i[k] - server.c[k]).add_((server.x[k] - y[k]).div_(step)) for k in c_i}  # c_i⁺, option II
        return Reply((y, params.sub(c_new, c_i)), metrics={"loss": fit.loss}), c_new

    def expects(self, server: State, task: Task) -> tuple[Params, Params]:
        return server.x, server.c

    def server_update(self, server: State, replies: Replies) -> State:
        y, delta = replies.mean()  # unweighted: (1/|S|) Σ_i
        x = {k: server.x[k] + self.lr * (y[k] - server.x[k]) if k in server.c else y[k] for k in y}
        c = params.add(server.c, delta, len(replies) / server.clients)  # c + (|S|/N) Δc
        return State(x, c, server.clients, server.round + 1)

    def release(self, server: State, id: int) -> Params:
        return server.x

    def export(self, x: Params, state: Params | None, client: int) -> Knowledge:
        return {"model": x}
