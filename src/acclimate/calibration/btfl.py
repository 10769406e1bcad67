"""BTFL's discretised-likelihood estimators and average entropies (Zhou & Liu, KDD 2025, §4.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.errors import MissingKnowledge
from acclimate.losses import entropy
from acclimate.models.head import features, head_of
from acclimate.options import NonNegative


class Total(NamedTuple):
    """What clients sent so far, added up."""

    p: Tensor  # their estimators
    clients: Tensor  # how many


class Own(NamedTuple):
    """What a client found in its training images."""

    p: Tensor  # its estimator: how often each discretised feature is 0, p_i of eq. (6)
    entropies: Tensor  # H̄_l and H̄_g, in nats


@dataclass(frozen=True)
class BTFL(Algorithm[Total, "Own | None"]):
    """Every client counts its discretised features, and measures how sure both heads are on its training images.

    Estimators travel, features do not. The global one is the mean of the *other* clients', as in the authors' code: it
    stands for external data (`others: false`: of all, as the paper writes it). One is added to both counts (Laplace),
    so that nothing is impossible; the paper adds nothing (`smoothing: 0`). Needs the heads of the training `btfl`.
    """

    needs = ("model", "head")
    exports = ("densities", "entropies")
    personal = ("densities", "entropies")

    others: bool = True
    smoothing: NonNegative = 1.0

    def init(self, task: Task) -> Total:
        size = head_of(task.build(None))[1].in_features
        return Total(torch.zeros(size, dtype=torch.float64), torch.zeros((), dtype=torch.float64))

    def client_update(self, total: Total, own: Own | None, client: Client) -> tuple[Reply, Own]:
        if own is not None:  # it counts once, however often it is asked
            return Reply(Total(torch.zeros_like(own.p), torch.zeros((), dtype=torch.float64))), own
        own = self._measure(client)
        return Reply(Total(own.p, torch.ones((), dtype=torch.float64))), own

    @torch.no_grad()
    def _measure(self, client: Client) -> Own:
        if "head" not in client.known:
            raise MissingKnowledge(
                f"calibration 'btfl' needs the personal 'head' of client {client.id}, which no phase has given it; "
                "train with the phase 'btfl' before (everybody, cohort: all), instead of 'fedavg'"
            )
        net, n = client.net(client.known["model"]).eval(), len(client.train)
        zeros, sums = torch.zeros((), dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
        for x, _ in client.train.batches(500):
            z, g = features(net, x)
            zeros = zeros + (z <= math.atanh(0.5)).double().sum(0)  # ẑ = Round[tanh z] = 0, eq. (5)
            heads = torch.stack([F.linear(z, client.known["head"]), g])
            sums += entropy(heads.double()).sum(1)
        return Own((zeros + self.smoothing) / (n + 2 * self.smoothing), sums / n)

    def server_update(self, total: Total, replies: Replies) -> Total:
        new: Total = replies.sum()
        return Total(total.p + new.p, total.clients + new.clients)

    def export(self, total: Total, own: Own | None, client: int) -> Knowledge:
        if own is None:
            return {}
        alone = total.clients <= 1
        mean = (total.p - own.p) / (total.clients - 1) if self.others and not alone else total.p / total.clients
        return {
            "densities": {"local": own.p, "global": mean},
            "entropies": {"local": own.entropies[0], "global": own.entropies[1]},
        }
