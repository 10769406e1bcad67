"""TSA: temporal-spatial aggregation by attention over signatures (Zhang et al., KDD 2024).

"Enabling Collaborative Test-Time Adaptation in Dynamic Environment via Federated Learning". The attention and its
training are in `ts_block.py`, the memory bank is in `ts_bank.py`. Where the paper is silent or cannot be meant
literally: W is the softmax of the scores (13), which alone are not weights; masked scores become −∞ and the diagonal
stays (`masks: hadamard` is as printed); (17) draws for each slot; 100 epochs, a new block and a new Adam per slot, as
in the authors' code, which differs by `window: 5, lr: 1e-4, lam: 0.1, masks: fixed-percent, pick: best, bias: true`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate.aggregators import ts_block
from acclimate.aggregators.mixing import drawn, mix, total_variances
from acclimate.aggregators.ts_bank import Bank
from acclimate.aggregators.ts_block import TSBlock
from acclimate.aggregators.ts_rows import fit_rows
from acclimate.contracts import Aggregator, Mix, Upload
from acclimate.options import Count, NonNegative, Positive, Share, Whole


@dataclass(frozen=True)
class TSA(Aggregator[Bank]):
    """W^t = softmax of the spatial scores of the last slot, after self-supervised training on the last T slots.

    A client that missed a slot counts there with its last signature before it, or, if it came later, its first. Beyond
    the paper, the last upload of an absent client takes part, its weight falling by `stale` for every slot of its age.
    Time grows with N² T (D = 256: 0.5 s a slot for 20 clients, 8 s for 200, minutes for 1,000). `rows: 100` keeps it at
    5 s with 1,000 clients, where all take 160, and moves 0.3 % of a row's weight with 4 groups of clients and 3 % with
    15 (other random masks alone move 0.8 %); `sample: 50` is faster and moves more (`benchmarks/tsa.py`).
    """

    signs: ClassVar[bool] = True
    remembers = True

    window: Count = 10  # T
    lr: Positive = 1e-3
    epochs: Whole = 100  # W depends mostly on lr x epochs
    lam: NonNegative = 1.0  # λ
    masks: Literal["bernoulli", "fixed-percent", "hadamard"] = "bernoulli"
    loss: Literal["mse", "norm"] = "mse"  # norm: (18) as printed
    pick: Literal["last", "best"] = "last"  # best: W of the epoch with the lowest loss
    warm_start: bool = False  # go on with the block of the last slot
    bias: bool = False  # of queries and keys
    total_variance: bool = False  # add the variance between clients to running variances
    stale: Share = 0.9  # 1: an old upload counts as a new one, 0: not at all
    sample: Count | None = None  # clients to train on, drawn anew in each slot; then `pick` is last
    rows: Count | None = None  # clients to train on in each step, over everybody's keys (`ts_rows.py`)
    ablation: Literal["none", "s-sim", "ts-sim", "no-time", "no-aug"] = "none"

    def __post_init__(self) -> None:
        if self.rows and (self.masks != "bernoulli" or self.loss == "norm" or self.pick == "best" or self.sample):
            raise ValueError(
                "rows: goes with masks: bernoulli, loss: mse, pick: last, without sample; others look at whole rows, "
                "or at all of them at once"
            )

    def init(self, start: Sequence[Upload]) -> Bank:
        return Bank(torch.zeros(0, dtype=torch.int64), {})

    def mix(self, state: Bank, uploads: Sequence[Upload], slot: int) -> Mix:
        bank = state.remember(uploads, self.window)
        age = torch.tensor([slot - upload.slot for upload in uploads])
        if not (age == 0).any():
            return Mix([], bank)
        slots = torch.cat([bank.slots, torch.tensor([slot])])[-self.window :]
        x = torch.stack([bank.seen[upload.client].at(slots) for upload in uploads])  # X [N, T', D]
        w, block = self._weights(x, bank.block)
        w = w[age == 0]
        if age.any():
            w = F.normalize(w * self.stale**age, p=1, dim=1)  # rows sum to one again
        between = total_variances(w, uploads) if self.total_variance else [{}] * len(w)
        downloads = [{**mixed, **variances} for mixed, variances in zip(mix(w, uploads), between, strict=True)]
        return Mix(downloads, Bank(slots, bank.seen, block if self.warm_start else None), drawn(w, uploads))

    def forget(self, state: Bank, client: int) -> Bank:
        return state._replace(seen={id: seen for id, seen in state.seen.items() if id != client})

    def _weights(self, x: Tensor, block: Tensor | None) -> tuple[Tensor, Tensor | None]:
        if self.ablation == "s-sim":
            p = x[:, -1].double()
            return (p @ p.T / p.shape[1] ** 0.5).softmax(1), None
        if self.sample is not None and self.sample < len(x):
            block = self._fit(x[torch.randperm(len(x))[: self.sample]], block).block
            return ts_block.fit(self._model(x), None, block=block, epochs=0)
        return self._fit(x, block)

    def _model(self, x: Tensor) -> TSBlock:
        return TSBlock(x, bias=self.bias, time=self.ablation != "no-time")

    def _fit(self, x: Tensor, block: Tensor | None) -> ts_block.Trained:
        lam = 0.0 if self.ablation == "no-aug" else self.lam
        if self.rows is not None and self.rows < len(x) and self.ablation != "ts-sim":
            return fit_rows(self._model(x), self.rows, block=block, lr=self.lr, epochs=self.epochs, lam=lam)
        return ts_block.fit(
            self._model(x),
            ts_block.draws_of(self.masks, x[:, -1]) if lam else None,
            block=block,
            lr=self.lr,
            epochs=0 if self.ablation == "ts-sim" else self.epochs,
            lam=lam,
            loss=self.loss,
            best=self.pick == "best",
        )
