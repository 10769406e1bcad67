"""Model and adaptation rates learnt together: what ATP's conclusion leaves to others (Bao et al., NeurIPS 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from acclimate import params
from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.models.modules import Kinds, Modules
from acclimate.options import Count
from acclimate.params import Params
from acclimate.rates import RateSteps
from acclimate.sgd import LocalSGD


class Joint(NamedTuple):
    """A model and how fast each of its modules adapts."""

    w: Params
    rates: Params  # α
    round: int


@dataclass(frozen=True)
class ATPJoint(Algorithm[Joint, None]):
    """In every round FedAvg's local training, then a pass over validation batches that moves the rates; both averaged.

    Rates do not act on the training of the model, which is FedAvg's bit for bit.
    Rates are learnt at the model that was sent, which is the same for all and near the one they will serve with;
    `on: trained` learns them at what the client has just made of it. The authors learn rates only after training.
    """

    exports = ("model", "rates")

    local: LocalSGD = LocalSGD()
    rates: RateSteps = RateSteps()
    batch_size: Count = 20  # B, of validation batches
    modules: Kinds = "all"
    on: Literal["sent", "trained"] = "sent"

    def init(self, task: Task) -> Joint:
        start = task.start()  # before anything else is drawn, so that it is FedAvg's
        names = Modules(task.build(None), self.modules).tensors
        return Joint(start, {name: torch.zeros((), dtype=tensor.dtype) for name, tensor in names.items()}, 0)

    def expects(self, server: Joint, task: Task) -> tuple[Params, Params]:
        return server.w, server.rates

    def client_update(self, server: Joint, state: None, client: Client) -> tuple[Reply, None]:
        net = client.net(server.w)
        fit = self.local.fit(net, client.train, client.rng, round=server.round)
        w = params.of(net)  # w_k
        modules = Modules(client.net(server.w if self.on == "sent" else w), self.modules)
        alpha, loss = self.rates.learn(modules, server.rates, client.validation.batches(self.batch_size))
        return Reply((w, alpha), len(client.train), {"loss": fit.loss, "adapted_loss": loss}), None

    def server_update(self, server: Joint, replies: Replies) -> Joint:
        w, alpha = replies.mean()  # rates, too, by the number of examples, so that one weight serves both
        return Joint(w, alpha, server.round + 1)

    def export(self, server: Joint, state: None, client: int) -> Knowledge:
        return {"model": server.w, "rates": server.rates}
