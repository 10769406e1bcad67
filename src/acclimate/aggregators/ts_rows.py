"""Training of a TS-Block on some rows at a time: TSA where there are many clients.

The loss (18) is a mean over clients and slots. A step goes down an estimate of it from the rows of some clients in two
slots, with the attention of these rows over everybody: R N instead of N² T products. Adam turns whatever noise is left
into steps, so the estimate is kept near the whole: each step has one client of every kind, the slots take turns, and
the masks are drawn twice. A mask leaves of a row little more than its own place; only that much of it is computed. The
scores are x (W_Q W_Kᵀ) xᵀ: only the rows are projected.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate.aggregators.ts_block import Trained, TSBlock

MASKS = 2
KINDS = 8  # principal components whose signs tell kinds of clients apart


def fit_rows(model: TSBlock, rows: int, *, block: Tensor | None, lr: float, epochs: int, lam: float) -> Trained:
    """Adam on `rows` clients at a time; W is the unmasked attention of the last slot."""
    n, t, _ = model.x.shape
    block = (model.identity() if block is None else block.clone()).requires_grad_()
    x, order = model.inputs().view(n, t, -1), by_kind(model.x.mean(1))
    optimizer = torch.optim.Adam([block], lr=lr, fused=True)
    for step in range(epochs):
        slots = torch.tensor(sorted({step % t, (step + t // 2) % t}))
        with torch.enable_grad():
            loss = _loss(model, x, block, slots, one_of_each(order, rows), lam)
            (block.grad,) = torch.autograd.grad(loss, block)
        optimizer.step()
    with torch.no_grad():
        temporal, spatial = _products(block)
        x_ta = (_time_scores(model, x, temporal, torch.tensor([t - 1])).softmax(-1) @ x).squeeze(1)
        w = (x_ta @ spatial @ x_ta.T).softmax(1).double()
    return Trained(w / w.sum(1, keepdim=True), block.detach())


def by_kind(p: Tensor) -> Tensor:
    """The clients by their signatures [N, D], those of a kind one after the other: the same signs of components."""
    centred = p - p.mean(0)
    signs = centred @ torch.linalg.eigh(centred.T @ centred).eigenvectors[:, -KINDS:] > 0
    kinds = (signs * 2 ** torch.arange(signs.shape[1])).sum(1)
    shuffled = torch.randperm(len(p))
    return shuffled[kinds[shuffled].argsort()]


def one_of_each(order: Tensor, rows: int) -> Tensor:
    """One client, at random, of each of `rows` equal stretches of an order."""
    ends = torch.arange(rows + 1) * len(order) // rows
    return order[ends[:-1] + (torch.rand(rows) * ends.diff()).long()]


def _loss(model: TSBlock, x: Tensor, block: Tensor, slots: Tensor, chosen: Tensor, lam: float) -> Tensor:
    """The loss (18) of some clients in some slots; the masks are drawn anew."""
    temporal, spatial = _products(block)
    scores = _time_scores(model, x, temporal, slots)
    attention = list(_over_time(scores, slots, MASKS if lam else 0))
    each = (torch.cat(attention, 1) @ x).transpose(0, 1).contiguous().unbind()  # X^TA (11), X^TA′ (16)
    losses = []
    for place, slot in enumerate(slots.tolist()):
        x_ta, *augmented = each[place :: len(slots)]
        a_s = ((x_ta.index_select(0, chosen) @ spatial) @ x_ta.T).softmax(-1)  # (13)
        seen = _values(model, a_s @ x_ta)  # (14)
        losses.append(F.mse_loss(seen, model.x[chosen, slot]))
        for x_ta in augmented:
            other = _values(model, _masked(a_s.detach(), x_ta, chosen, spatial))  # (17)
            losses.append(lam / MASKS * F.mse_loss(seen, other))
    return torch.stack(losses).sum() / len(slots)


def _over_time(scores: Tensor, slots: Tensor, masks: int) -> Iterator[Tensor]:
    """The attention over time [N, S, T], without a mask and then with `masks` of them."""
    attention = scores.softmax(-1)
    yield attention
    for _ in range(masks):
        yield scores.masked_fill(~_drawn(attention, slots.expand(len(scores), -1)), -math.inf).softmax(-1)


def _masked(a_s: Tensor, x_ta: Tensor, chosen: Tensor, spatial: Tensor) -> Tensor:
    """Some clients' rows of X^TSA′: masked attention, of which only what stays is computed."""
    row, key = _drawn(a_s, chosen).nonzero().unbind(1)
    keys = x_ta.index_select(0, key)
    scores = ((x_ta.index_select(0, chosen) @ spatial).index_select(0, row) * keys).sum(1)
    most = torch.full_like(chosen, -math.inf, dtype=scores.dtype).scatter_reduce(0, row, scores.detach(), "amax")
    weights = (scores - most[row]).exp()
    sums = torch.zeros_like(most).index_add(0, row, weights)
    return keys.new_zeros(len(chosen), keys.shape[1]).index_add(0, row, keys * (weights / sums[row]).unsqueeze(1))


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


def _values(model: TSBlock, attended: Tensor) -> Tensor:
    """Without the ones of the biases, and not divided."""
    d = model.x.shape[2]
    return attended[..., :d] * float(d**0.25)


def _drawn(attention: Tensor, own: Tensor) -> Tensor:
    """What stays, with the probability of its attention; everybody's own place always."""
    stay = torch.rand_like(attention) < attention.detach()
    return stay.scatter_(-1, own.unsqueeze(-1), True)
