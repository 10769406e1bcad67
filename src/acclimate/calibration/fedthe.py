"""FedTHE's descriptors: mean features of a client and of all (Jiang & Lin, ICLR 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.models.head import features, head_of


class Total(NamedTuple):
    """What clients sent so far, added up."""

    h: Tensor  # their mean features
    clients: Tensor  # how many


@dataclass(frozen=True)
class FedTHE(Algorithm[Total, "Tensor | None"]):
    """Every client has the mean feature of its own training images (h_l) and the plain mean of all clients' (h_g)."""

    exports = ("means",)
    personal = ("means",)

    def init(self, task: Task) -> Total:
        size = head_of(task.build(None))[1].in_features
        return Total(torch.zeros(size, dtype=torch.float64), torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def client_update(self, total: Total, own: Tensor | None, client: Client) -> tuple[Reply, Tensor]:
        if own is not None:  # it counts once, however often it is asked
            return Reply(Total(torch.zeros_like(own), torch.zeros((), dtype=torch.float64))), own
        net = client.net(client.known["model"]).eval()
        h = torch.zeros_like(total.h)
        for x, _ in client.train.batches(500):
            h += features(net, x)[0].double().sum(0)
        h = h / len(client.train)
        return Reply(Total(h, torch.ones((), dtype=torch.float64))), h

    def server_update(self, total: Total, replies: Replies) -> Total:
        new: Total = replies.sum()
        return Total(total.h + new.h, total.clients + new.clients)

    def export(self, total: Total, own: Tensor | None, client: int) -> Knowledge:
        return {} if own is None else {"means": {"local": own, "global": total.h / total.clients}}
