"""BBSE's confusion matrix, gathered from the source clients' validation data (Lipton et al., ICML 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task


@dataclass(frozen=True)
class BBSE(Algorithm[Tensor, None]):
    """Count predicted x true classes on every source client; counts travel, images do not."""

    exports = ("confusion",)
    kind: Literal["hard", "soft"] = "hard"  # count predictions, or add up probabilities

    def init(self, task: Task) -> Tensor:
        return torch.zeros(task.classes, task.classes, dtype=torch.float64)

    @torch.no_grad()
    def client_update(self, total: Tensor, state: None, client: Client) -> tuple[Reply, None]:
        net, classes = client.net(client.known["model"]).eval(), client.task.classes
        counts = torch.zeros(classes, classes, dtype=torch.float64)
        for x, y in client.validation.batches(500):
            p = net(x).softmax(-1)
            if self.kind == "hard":
                p = F.one_hot(p.argmax(-1), classes)
            counts += p.double().T @ F.one_hot(y, classes).double()  # Ĉ[ŷ, y]
        return Reply(counts), None

    def server_update(self, total: Tensor, replies: Replies) -> Tensor:
        summed: Tensor = total + replies.sum()
        return summed

    def export(self, total: Tensor, state: None, client: int) -> Knowledge:
        return {"confusion": total}
