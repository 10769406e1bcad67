"""Training of a TS-Block on some rows at a time: TSA where there are many clients.

The loss (18) is a mean over clients and slots. A step on the rows of some clients, drawn anew, in two slots, with the
attention of these rows over everybody, goes down an estimate of it with R N instead of N² T products. The scores are
x (W_Q W_Kᵀ) xᵀ: only the rows are projected.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate.aggregators.ts_block import Trained, TSBlock

SLOTS = 2  # evenly spread over the window, the last among them, and the same in every step: other slots, other steps


def fit_rows(
    model: TSBlock, rows: int, *, block: Tensor | None, lr: float, epochs: int, lam: float, hadamard: bool = False
) -> Trained:
    """Adam on `rows` clients at a time; W is the unmasked attention of the last slot."""
    n, t, _ = model.x.shape
    block = (model.identity() if block is None else block.clone()).requires_grad_()
    x = model.inputs().view(n, t, -1)
    slots = torch.arange(t - 1, -1, -max(1, t // SLOTS))[:SLOTS]
    optimizer = torch.optim.Adam([block], lr=lr, fused=True)
    for _ in range(epochs):
        chosen = torch.randperm(n)[:rows]
        with torch.enable_grad():
            loss = _loss(model, x, block, slots, chosen, lam, hadamard)
            (block.grad,) = torch.autograd.grad(loss, block)
        optimizer.step()
    with torch.no_grad():
        temporal, spatial = _products(block)
        x_ta = _over_time(x, _time_scores(model, x, temporal, slots[:1]).softmax(-1))[0]
        w = (x_ta @ spatial @ x_ta.T).softmax(1).double()
    return Trained(w / w.sum(1, keepdim=True), block.detach())


def _loss(
    model: TSBlock, x: Tensor, block: Tensor, slots: Tensor, chosen: Tensor, lam: float, hadamard: bool
) -> Tensor:
    """The loss (18) of some clients in some slots; the masks are drawn anew."""
    temporal, spatial = _products(block)
    scores = _time_scores(model, x, temporal, slots)
    a_t, x_ta = scores.softmax(-1), _over_time(x, scores.softmax(-1))  # (11)
    a_s = _scores(x_ta, chosen, spatial).softmax(-1)
    seen = a_s @ _values(model, x_ta)  # (14)
    loss = F.mse_loss(seen, model.x[chosen][:, slots].transpose(0, 1))
    if not lam:
        return loss
    if model.time:
        stay = _drawn(a_t, slots.expand(len(x), -1), hadamard)
        x_ta = _over_time(x, _masked(scores, stay, hadamard).softmax(-1))  # (16)
    stay = _drawn(a_s, chosen.expand(len(slots), -1), hadamard)
    masked = _masked(_scores(x_ta, chosen, spatial), stay, hadamard).softmax(-1)
    return loss + lam * F.mse_loss(seen, masked @ _values(model, x_ta))  # (17)


def _products(block: Tensor) -> tuple[Tensor, Tensor]:
    """W_Q W_Kᵀ of the attention over time and of the one over clients."""
    q_t, k_t, q_s, k_s = block.chunk(4, 1)
    return q_t @ k_t.T, q_s @ k_s.T


def _time_scores(model: TSBlock, x: Tensor, product: Tensor, slots: Tensor) -> Tensor:
    """Everybody's temporal scores in some slots [N, S, T] (10); without `time` each slot attends to itself alone."""
    if not model.time:
        own = F.one_hot(slots, x.shape[1]).bool().expand(len(x), -1, -1)
        return torch.zeros(own.shape, dtype=x.dtype).masked_fill_(~own, -math.inf)
    return (x[:, slots] @ product) @ x.mT


def _over_time(x: Tensor, attention: Tensor) -> Tensor:
    """X^TA in some slots [S, N, D]."""
    return (attention @ x).transpose(0, 1)


def _scores(x_ta: Tensor, chosen: Tensor, product: Tensor) -> Tensor:
    """The spatial scores of some clients over everybody [S, R, N] (13)."""
    return (x_ta[:, chosen] @ product) @ x_ta.mT


def _values(model: TSBlock, x_ta: Tensor) -> Tensor:
    """X^TA itself, without the ones of the biases, and not divided."""
    d = model.x.shape[2]
    return x_ta[..., :d] * float(d**0.25)


def _drawn(attention: Tensor, own: Tensor, hadamard: bool) -> Tensor:
    """Stays with the probability of its attention; everybody's own place always, but for Hadamard masks."""
    stay = torch.rand_like(attention) < attention.detach()
    return stay if hadamard else stay.scatter_(-1, own.unsqueeze(-1), True)


def _masked(scores: Tensor, stay: Tensor, hadamard: bool) -> Tensor:
    return scores * stay if hadamard else scores.masked_fill(~stay, -math.inf)
