"""BTFL's training: FedAvg, and beside it a personal head for each client (Zhou & Liu, KDD 2025, §4.1)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate import params
from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.models.head import features, head_of
from acclimate.options import Count, NonNegative
from acclimate.params import Params
from acclimate.sgd import Group, LocalSGD, Loss
from acclimate.training.fedavg import Global


@dataclass(frozen=True)
class BTFL(Algorithm[Global, Tensor]):
    """Average whole models; each client also trains a linear head w_p of its own on the frozen model it was sent.

    The personal head never touches the order of batches, and trains last: the shared model is FedAvg's to the bit, so
    that one phase serves all who start from it. As in the authors' code the head has no bias, is drawn once and kept
    from round to round; `head: global` starts it in every round from the head that was sent (the paper's fine-tuning).
    `l1` is their code's penalty σ on features.
    """

    exports = ("model", "head")
    personal = ("head",)

    local: LocalSGD = LocalSGD()
    head_epochs: Count = 1
    head: Literal["kept", "global"] = "kept"
    l1: NonNegative = 0.0  # σ

    def prior(self, client: Client) -> Tensor | float:
        """What is added to the shared model's logits while it trains."""
        return 0.0

    def loss(self, net: nn.Module, client: Client) -> Loss:
        """What the shared model goes down."""
        prior = self.prior(client)

        def loss(x: Tensor, y: Tensor) -> Tensor:
            if not self.l1:
                return F.cross_entropy(net(x) + prior, y)
            z, logits = features(net, x)
            return F.cross_entropy(logits + prior, y) + self.l1 * z.abs().sum() / len(y)

        return loss

    def init(self, task: Task) -> Global:
        return Global(task.start(), 0)

    def client_init(self, client: Client) -> Tensor:
        head = head_of(client.task.build(client.id))[1]
        return nn.Linear(head.in_features, head.out_features, bias=False, dtype=head.weight.dtype).weight.detach()

    def client_update(self, server: Global, head: Tensor, client: Client) -> tuple[Reply, Tensor]:
        net = client.net(server.w)
        fit = self.local.fit(net, client.train, client.rng, self.loss(net, client), round=server.round)
        reply = Reply(params.of(net), len(client.train), {"loss": fit.loss})
        return reply, self._personal(client.net(server.w).eval(), head, client, server.round)

    def _personal(self, net: nn.Module, head: Tensor, client: Client, round: int) -> Tensor:
        """w_p after this round's epochs, on features of the frozen model that was sent."""
        start = head if self.head == "kept" else head_of(net)[1].weight
        w_p = params.copy(start).requires_grad_()

        def loss(x: Tensor, y: Tensor) -> Tensor:
            with torch.no_grad():
                z = features(net, x)[0]
            return F.cross_entropy(F.linear(z, w_p), y)

        epochs = replace(self.local, epochs=self.head_epochs, steps=None)
        epochs.fit([Group({"head": w_p}, loss)], client.train, torch.default_generator, round=round)
        return w_p.detach()

    @property
    def sends_back(self) -> bool:
        return True

    def expects(self, server: Global, task: Task) -> Params:
        return server.w

    def server_update(self, server: Global, replies: Replies) -> Global:
        return Global(replies.mean(), server.round + 1)

    def export(self, server: Global, head: Tensor | None, client: int) -> Knowledge:
        return {"model": server.w, **({} if head is None else {"head": head})}
