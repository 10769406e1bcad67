"""FedGMA: gradient-masked averaging (Tenison et al., 2022, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from acclimate import params
from acclimate.contracts import Client, Replies, Reply, Task
from acclimate.options import Positive, Share
from acclimate.params import Params
from acclimate.training.fedavg import FedAvg, Global


class Update(NamedTuple):
    """What a client sends; it counts once for the signs, so its examples are in the numbers."""

    scaled: Params  # n_k w_k
    sign: Params  # sign(Δ_k), of the trained tensors
    n: Tensor  # n_k


@dataclass(frozen=True)
class FedGMA(FedAvg):
    """The server follows the mean update where clients agree on its sign, and less of it where they do not.

    Clients count alike in the agreement and by their examples in the mean. Batch statistics are averaged.
    """

    lr: Positive = 1.0  # η_g
    threshold: Share = 0.1  # τ

    def client_update(self, server: Global, state: None, client: Client) -> tuple[Reply, None]:
        reply, _ = super().client_update(server, state, client)
        w, n = server.w, len(client.train)
        trained = dict(client.task.build(client.id).named_parameters())
        sign = {name: (reply.update[name] - w[name]).sign() for name in trained}
        scaled = {name: tensor * n for name, tensor in reply.update.items()}
        return Reply(Update(scaled, sign, torch.tensor(float(n))), metrics=reply.metrics), None

    @property
    def sends_back(self) -> bool:
        return False  # signs and scaled changes

    def expects(self, server: Global, task: Task) -> Update:  # type: ignore[override]
        trained = [name for name, _ in task.build(None).named_parameters()]
        return Update(server.w, {name: server.w[name] for name in trained}, torch.tensor(0.0))

    def server_update(self, server: Global, replies: Replies) -> Global:
        update: Update = replies.mean()
        mean = {name: params.cast(total / update.n, total.dtype) for name, total in update.scaled.items()}
        for name, sign in update.sign.items():
            agreement = sign.abs()  # A = |1/K Σ_k sign(Δ_k)|
            mask = torch.where(agreement >= self.threshold, 1.0, agreement)  # m̃_τ
            w = server.w[name]
            mean[name] = w + self.lr * mask * (mean[name] - w)  # w + η_g m̃_τ ⊙ Σ_k (n_k / n) Δ_k
        return Global(mean, server.round + 1)
