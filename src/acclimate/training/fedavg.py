"""FedAvg: federated averaging (McMahan et al., AISTATS 2017, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

from acclimate import params
from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.losses import Term
from acclimate.params import Params
from acclimate.sgd import LocalSGD


@dataclass(frozen=True)
class FedAvg(Algorithm[Params, None]):
    """Average the clients' models, weighted by their number of examples; batch statistics too."""

    local: LocalSGD = LocalSGD()

    def term(self) -> Term | None:
        """What a client adds to its loss."""
        return None

    def init(self, task: Task) -> Params:
        return task.start()  # w_0

    def client_update(self, w: Params, state: None, client: Client) -> tuple[Reply, None]:
        net = client.net(w)
        fit = self.local.fit(net, client.train, client.rng, term=self.term(), anchor=w)  # w_k
        return Reply(params.of(net), len(client.train), {"loss": fit.loss}), None

    def server_update(self, w: Params, replies: Replies) -> Params:
        mean: Params = replies.mean()  # w_{t+1} = Σ_k (n_k / n) w_k
        return mean

    def export(self, w: Params, state: None) -> Knowledge:
        return {"model": w}
