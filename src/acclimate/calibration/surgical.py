"""Surgical fine-tuning's choice of block and rate, on the source clients' validation data (Lee et al., ICLR 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from acclimate import params
from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.models.blocks import blocks
from acclimate.models.modules import Modules
from acclimate.options import Count, Rates
from acclimate.params import Params


@dataclass(frozen=True)
class Surgical(Algorithm[Params, None]):
    """Try one entropy step of every rate on each block, every batch on its own, and count what is then right.

    The unsupervised form of ATP's comparison: eval mode, running statistics stay. Counts travel; block and rate with
    the most correct images win together, since a rate that suits one block ruins another: of equals the first block,
    and of its rates the first. All steps start from the same model along one direction, so one backward pass per batch
    gives them all; there is a forward pass for each pair.
    """

    exports = ("block", "rate")
    revision: ClassVar[int] = 1  # there was one rate, and the block was chosen at it

    lrs: Rates = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
    batch_size: Count = 20

    def init(self, task: Task) -> Params:
        return {name: torch.zeros(len(self.lrs), dtype=torch.float64) for name in blocks(task.build(None))}

    def client_update(self, total: Params, state: None, client: Client) -> tuple[Reply, None]:
        modules = Modules(client.net(client.known["model"]), "params")
        groups, correct, stay = blocks(modules.net), params.zeros_like(total), torch.zeros((), dtype=torch.float64)
        for x, y in client.validation.batches(self.batch_size):
            modules.restore()
            h = modules.directions(x)  # −∇ of the mean entropy
            for block, members in groups.items():
                for i, lr in enumerate(self.lrs):
                    step = dict.fromkeys(members, torch.tensor(lr, dtype=torch.float64))
                    modules.move(dict.fromkeys(h, stay) | step, h)
                    with torch.no_grad():
                        correct[block][i] += (modules.net(x).argmax(-1) == y).sum()
        return Reply(correct), None

    def server_update(self, total: Params, replies: Replies) -> Params:
        return params.add(total, replies.sum())

    def export(self, total: Params, state: None, client: int) -> Knowledge:
        block = max(total, key=lambda name: total[name].max().item())  # the first of equals
        return {"block": block, "rate": self.lrs[int(total[block].argmax())]}
