"""Surgical fine-tuning's choice of a block, made on the source clients' validation data (Lee et al., ICLR 2023)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from acclimate import params
from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.models.blocks import blocks
from acclimate.models.modules import Modules
from acclimate.options import Count, Positive
from acclimate.params import Params


@dataclass(frozen=True)
class Surgical(Algorithm[Params, None]):
    """Try one entropy step on each block, every batch on its own, and count what is then right; counts travel.

    The unsupervised form of ATP's comparison: eval mode, running statistics stay. The block with the most correct
    images wins, the first of equals. Use the rate that the adapter will have. All blocks' steps start from the same
    model, so one backward pass per batch gives them all.
    """

    exports = ("block",)

    lr: Positive = 0.01
    batch_size: Count = 20

    def init(self, task: Task) -> Params:
        return {name: torch.zeros((), dtype=torch.float64) for name in blocks(task.build(None))}

    def client_update(self, total: Params, state: None, client: Client) -> tuple[Reply, None]:
        modules = Modules(client.net(client.known["model"]), "params")
        groups, correct = blocks(modules.net), dict.fromkeys(total, 0)
        step = {on: torch.tensor(self.lr if on else 0.0, dtype=torch.float64) for on in (True, False)}
        for x, y in client.validation.batches(self.batch_size):
            modules.restore()
            h = modules.directions(x)  # −∇ of the mean entropy
            for block, members in groups.items():
                chosen = set(members)
                modules.move({name: step[name in chosen] for name in h}, h)
                with torch.no_grad():
                    correct[block] += int((modules.net(x).argmax(-1) == y).sum())
        return Reply({block: torch.tensor(n, dtype=torch.float64) for block, n in correct.items()}), None

    def server_update(self, total: Params, replies: Replies) -> Params:
        return params.add(total, replies.sum())

    def export(self, total: Params, state: None, client: int) -> Knowledge:
        return {"block": max(total, key=lambda block: total[block].item())}  # the first of equals
