"""Fine-tuning: every client goes on training the model it has, alone (FedAvg+FT; Yu et al., 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from acclimate import params
from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.models.head import head_of
from acclimate.params import Params
from acclimate.sgd import LocalSGD


@dataclass(frozen=True)
class FineTune(Algorithm[Tensor, Params]):
    """One round of local training is what papers call FedAvg+FT; nothing but the round is exchanged.

    `part: head` trains the head alone and leaves the rest as it is, batch statistics too. Whoever never took part keeps
    the model of earlier phases.
    """

    personal = ("model",)

    local: LocalSGD = LocalSGD()
    part: Literal["all", "head"] = "all"

    def init(self, task: Task) -> Tensor:
        return torch.zeros((), dtype=torch.float64)  # rounds so far

    def client_init(self, client: Client) -> Params:
        return client.start()

    def client_update(self, rounds: Tensor, own: Params, client: Client) -> tuple[Reply, Params]:
        net = client.net(own)
        if self.part == "head":
            net.requires_grad_(False).eval()
            head_of(net)[1].requires_grad_(True)
        fit = self.local.fit(net, client.train, client.rng, round=int(rounds))
        return Reply({}, len(client.train), {"loss": fit.loss}), params.of(net)

    def expects(self, rounds: Tensor, task: Task) -> Params:
        return {}

    def server_update(self, rounds: Tensor, replies: Replies) -> Tensor:
        return rounds + 1

    def export(self, rounds: Tensor, own: Params | None, client: int) -> Knowledge:
        return {} if own is None else {"model": own}
