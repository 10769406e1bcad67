"""q-FFL: fair federated learning by q-FedAvg (Li et al., ICLR 2020, Algorithm 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate import params
from acclimate.contracts import Client, Replies, Reply, Task
from acclimate.examples import Examples
from acclimate.options import NonNegative
from acclimate.params import Params
from acclimate.training.fedavg import FedAvg, Global


class Update(NamedTuple):
    """What a client sends."""

    delta: Params  # Δ_k
    h: Tensor  # h_k
    statistics: Params  # of batch norms


@dataclass(frozen=True)
class QFFL(FedAvg):
    """Minimise Σ_k F_k^(q+1) / (q + 1): the worse off a client is, the more its update counts.

    q = 0 gives the plain mean of the clients' models, each client counted once (the paper draws clients in proportion
    to their examples; here every cohort is uniform). F_k is the training loss, in eval mode, of the model as sent.
    Batch statistics have no gradient and are averaged.
    """

    q: NonNegative = 1.0

    def client_update(self, server: Global, state: None, client: Client) -> tuple[Reply, None]:
        net, w = client.net(server.w), server.w
        f = mean_loss(net, client.train) + 1e-10  # F_k(w^t); not zero, for its powers
        self.local.fit(net.train(), client.train, client.rng, round=server.round)  # w̄_k
        lipschitz = 1 / self.local.rate(server.round)  # L
        after = params.of(net)
        step = {name: lipschitz * (w[name] - after[name]) for name, _ in net.named_parameters()}  # Δw_k
        delta = {name: f**self.q * tensor for name, tensor in step.items()}  # Δ_k = F_k^q Δw_k
        squared = params.dot(step, step).double()
        h = self.q * f ** (self.q - 1) * squared + lipschitz * f**self.q  # h_k
        statistics = {name: tensor for name, tensor in after.items() if name not in step}
        return Reply(Update(delta, h, statistics), metrics={"loss": f}), None

    @property
    def sends_back(self) -> bool:
        return False  # scaled changes and a curvature

    def expects(self, server: Global, task: Task) -> Update:  # type: ignore[override]
        trained = dict(task.build(None).named_parameters())
        delta = {name: tensor for name, tensor in server.w.items() if name in trained}
        statistics = {name: tensor for name, tensor in server.w.items() if name not in trained}
        return Update(delta, torch.zeros((), dtype=torch.float64), statistics)

    def server_update(self, server: Global, replies: Replies) -> Global:
        mean: Update = replies.mean()
        # w − Σ_k Δ_k / Σ_k h_k
        moved = {name: server.w[name] - (delta / mean.h).to(delta.dtype) for name, delta in mean.delta.items()}
        return Global({name: {**moved, **mean.statistics}[name] for name in server.w}, server.round + 1)


@torch.no_grad()
def mean_loss(net: nn.Module, examples: Examples) -> float:
    """The mean cross-entropy over all examples, in eval mode."""
    net.eval()
    total = sum(float(F.cross_entropy(net(x), y, reduction="sum")) for x, y in examples.batches(500))
    return total / max(len(examples), 1)
