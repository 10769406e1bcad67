"""AFL: agnostic federated learning (Mohri et al., ICML 2019, §4, stochastic AFL).

The UPFL paper gives the two rates and leaves the local work open: here clients train as in FedAvg, from the model as
sent, and the server averages their models by λ. The loss that moves λ is that of the model as sent, in eval mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from acclimate.contracts import Client, Knowledge, Replies, Reply, Task
from acclimate.options import NonNegative
from acclimate.params import Params
from acclimate.simplex import to_simplex
from acclimate.training.fedavg import Averaging, Global
from acclimate.training.qffl import mean_loss


class State(NamedTuple):
    """The model, and how much each client counts."""

    sent: Global
    weights: dict[int, float]  # λ


LARGEST = 1e6  # of losses: far beyond any that says something, and the projection still tells weights apart


@dataclass(frozen=True)
class AFL(Averaging[State]):
    """Minimise the loss of the worst mixture of clients: those with a high loss gain weight, others lose all of it.

    Everybody is sent all weights, so that one message serves all.
    """

    weights_lr: NonNegative = 0.01  # γ_λ; that of the model, γ_w, is `local.lr`

    def init(self, task: Task) -> State:
        return State(Global(task.start(), 0), dict.fromkeys(task.source, 1 / len(task.source)))

    def client_update(self, server: State, state: None, client: Client) -> tuple[Reply, None]:  # type: ignore[override]
        loss = mean_loss(client.net(server.sent.w), client.train)  # L_k(w)
        reply, _ = super().client_update(server.sent, state, client)
        return Reply(reply.update, server.weights[client.id], {"loss": loss}), None

    def server_update(self, server: State, replies: Replies) -> State:
        losses = {id: m.get("loss", 0.0) for id, m in replies.metrics.items() if id not in replies.left_out}
        rising = {id: max(-LARGEST, min(loss, LARGEST)) for id, loss in losses.items()}  # ∇_λ
        moved = [weight + self.weights_lr * rising.get(id, 0.0) for id, weight in server.weights.items()]
        nearest = to_simplex(torch.tensor(moved, dtype=torch.float64)).tolist()  # λ ← Π_Λ(λ + γ_λ ∇_λ L)
        sent = Global(replies.mean(), server.sent.round + 1)  # Σ_k λ_k w_k
        return State(sent, dict(zip(server.weights, nearest, strict=True)))

    @property
    def sends_back(self) -> bool:
        return False  # the server also needs its loss and weight

    def expects(self, server: State, task: Task) -> Params:  # type: ignore[override]
        return server.sent.w

    def export(self, server: State, state: None, client: int) -> Knowledge:  # type: ignore[override]
        return {"model": server.sent.w}
