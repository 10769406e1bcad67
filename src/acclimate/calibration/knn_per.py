"""kNN-Per's local memory (Marfoq et al., ICML 2022)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.models.head import features
from acclimate.neighbours import by_neighbours
from acclimate.options import Count, Positive, Share
from acclimate.trees import Nest


@dataclass(frozen=True)
class KNNPer(Algorithm[Tensor, Nest]):
    """Every client stores the features of its training images with their labels; nothing leaves it.

    The weight λ of the neighbours is the one of 0, 0.1, … 0.9 that is right most often on the client's validation
    images (the smallest of several), unless `share` fixes it. BTFL's comparison chose it on test images.
    """

    exports = ("memory",)
    personal = ("memory",)

    k: Count = 10
    scale: Positive = 1.0  # σ
    share: Share | None = None  # λ

    def init(self, task: Task) -> Tensor:
        return torch.zeros((), dtype=torch.float64)  # how many have built theirs

    @torch.no_grad()
    def client_update(self, count: Tensor, own: Nest, client: Client) -> tuple[Reply, Nest]:
        net = client.net(client.known["model"]).eval()
        stored = torch.cat([features(net, x)[0] for x, _ in client.train.batches(500)])
        memory = {"features": stored, "labels": client.train.y.clone(), "k": self.k, "scale": self.scale}
        share = self.share
        if share is None:
            right = torch.zeros(10, dtype=torch.int64)
            for x, y in client.validation.batches(500):
                z, logits = features(net, x)
                near = by_neighbours(z, stored, client.train.y, client.task.classes, self.k, self.scale)
                p = logits.softmax(1)
                mixes = torch.stack([(1 - i / 10) * p + i / 10 * near for i in range(10)])
                right += (mixes.argmax(2) == y).sum(1)
            share = int(right.argmax()) / 10
        return Reply(torch.ones((), dtype=torch.float64)), {**memory, "share": share}

    def server_update(self, count: Tensor, replies: Replies) -> Tensor:
        total: Tensor = count + replies.sum()
        return total

    def export(self, count: Tensor, own: Nest | None, client: int) -> Knowledge:
        return {} if own is None else {"memory": own}
