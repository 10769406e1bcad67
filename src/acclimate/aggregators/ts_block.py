"""The TS-Block of TSA: attention over time, then over clients, its masks and its training.

Zhang et al., KDD 2024, §4.4. A window X [N, T, D] holds the signatures of N clients in T slots. The values are X
itself (W_V = I), so queries and keys of the spatial attention are (A X) W = A (X W): all four projections are one
product X W, made once per step and shared by the unmasked and the masked pass. The gradient is written by hand in
the same few products; `tests/aggregators/test_tsa.py` compares it with autograd.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

Draw = Callable[[Tensor], Tensor]  # attention [..., n, n], rows sum to one → what of it stays (bool)


class Draws(NamedTuple):
    """How the masks of the augmented pass come about."""

    temporal: Draw
    spatial: Draw
    hadamard: bool = False  # False: scores that do not stay become −∞; True: zero, as printed


class Pass(NamedTuple):
    """What a forward pass leaves; P is 1, or 2 where a masked pass follows the unmasked one."""

    projected: Tensor  # X (W_Q^T, W_K^T, W_Q^S, W_K^S) [N, T, 4 D]
    values: Tensor  # X (I, W_Q^S, W_K^S) [N, T, 3 D]
    a_t: Tensor  # softmax(A^(T)) [N, P T, T]
    x_ta: Tensor  # X^TA with its queries and keys [N, P T, 3 D]
    a_s: Tensor  # softmax(A^(S)) [P T, N, N]
    x_tsa: Tensor  # [P T, N, D]
    scales: tuple[Tensor, Tensor] | None  # the Hadamard masks


@dataclass(frozen=True)
class TSBlock:
    """The TS-Block on one window; `time` = False attends over clients only."""

    x: Tensor  # [N, T, D]
    bias: bool = False
    time: bool = True

    def identity(self) -> Tensor:
        """The four projections before training, side by side [D, 4 D]; biases are a last row of zeros."""
        d = self.x.shape[2]
        return torch.eye(d + self.bias, d, dtype=self.x.dtype).repeat(1, 4)

    def inputs(self) -> Tensor:
        """X as [N T, D], with ones for the biases; divided by D^¼, so that Q K^T is divided by √D."""
        flat: Tensor = self.x.flatten(0, 1) * self.x.shape[2] ** -0.25
        return F.pad(flat, (0, 1), value=self.x.shape[2] ** -0.25) if self.bias else flat

    def attend(self, inputs: Tensor, block: Tensor, draws: Draws | None = None) -> Pass:
        """Attention over time and over clients, without masks and then, given `draws`, with them."""
        n, t, d = self.x.shape
        projected = (inputs @ block).view(n, t, 4 * d)  # (9), (12)
        hadamard = draws is not None and draws.hadamard
        if self.time:
            scores = projected[..., :d] @ projected[..., d : 2 * d].mT  # (10)
            a_t, stay_t = _soften(scores, scores, draws and draws.temporal, hadamard, 1)
        else:
            a_t = torch.eye(t, dtype=self.x.dtype).repeat(2 if draws else 1, 1).expand(n, -1, -1)
            stay_t = a_t
        values = torch.cat([self.x, projected[..., 2 * d :]], 2)
        x_ta = a_t @ values  # (11), (16)
        x, q, k = x_ta.transpose(0, 1).split(d, 2)
        scores = q @ k.mT  # (13)
        a_s, stay_s = _soften(scores[:t], scores[t:], draws and draws.spatial, hadamard, 0)
        return Pass(projected, values, a_t, x_ta, a_s, a_s @ x, (stay_t, stay_s) if hadamard else None)  # (14), (17)

    def gradient(self, inputs: Tensor, made: Pass, g: Tensor) -> Tensor:
        """The gradient of the four projections, given the one of X^TSA (and X^TSA′) [P T, N, D]."""
        n, t, d = self.x.shape
        projected, values, a_t, x_ta, a_s, _, scales = made
        x, q, k = x_ta.transpose(0, 1).split(d, 2)
        s = _before_softmax(g @ x.mT, a_s)
        if scales:
            s[t:] *= scales[1]
        back = torch.cat([a_s.mT @ g, s @ k, s.mT @ q], 2).transpose(0, 1)  # of X^TA, its queries and keys
        spatial = a_t.mT @ back[..., d:]
        if not self.time:
            temporal = torch.zeros_like(spatial)
        else:
            s = _before_softmax(back @ values.mT, a_t)
            if scales:
                s[:, t:] *= scales[0]
            s = s.unflatten(1, (-1, t)).sum(1)  # both passes have the same scores
            temporal = torch.cat([s @ projected[..., d : 2 * d], s.mT @ projected[..., :d]], 2)
        return inputs.mT @ torch.cat([temporal, spatial], 2).view(n * t, 4 * d)


def _soften(scores: Tensor, augmented: Tensor, draw: Draw | None, hadamard: bool, dim: int) -> tuple[Tensor, Tensor]:
    """softmax(A), joined along `dim` by the softmax of the masked scores where there is a draw; and what stays."""
    attention = scores.softmax(-1)
    if draw is None:
        return attention, attention
    stay = draw(attention)
    masked = augmented * stay if hadamard else augmented.masked_fill(~stay, -math.inf)
    return torch.cat([attention, masked.softmax(-1)], dim), stay


def _before_softmax(gradient: Tensor, attention: Tensor) -> Tensor:
    """The gradient of scores, given that of their softmax."""
    return gradient.sub_((gradient * attention).sum(-1, keepdim=True)).mul_(attention)


Loss = Literal["mse", "norm"]


def _term(difference: Tensor, loss: Loss) -> tuple[float, Tensor]:
    """A term of the loss, and its gradient."""
    norm = float(torch.linalg.vector_norm(difference))
    if loss == "mse":
        return norm**2 / difference.numel(), difference * (2 / difference.numel())
    return norm, difference / norm if norm else difference


def objective(x_tsa: Tensor, x: Tensor, lam: float, loss: Loss) -> tuple[float, Tensor]:
    """‖X^TSA − X‖ + λ ‖X^TSA − X^TSA′‖ (18), and its gradient by X^TSA and X^TSA′ [P T, N, D]."""
    t = x.shape[1]
    value, g = _term(x_tsa[:t] - x.transpose(0, 1), loss)
    if len(x_tsa) == t:
        return value, g
    robust, h = _term(x_tsa[:t] - x_tsa[t:], loss)
    return value + lam * robust, torch.cat([g.add_(h, alpha=lam), h.mul_(-lam)])


class Trained(NamedTuple):
    """A trained block and the collaboration matrix it gives."""

    w: Tensor  # W [N, N]
    block: Tensor


@torch.no_grad()
def fit(
    model: TSBlock,
    draws: Draws | None,
    *,
    block: Tensor | None = None,  # where to start; None: the identity
    lr: float = 1e-3,
    epochs: int = 100,
    lam: float = 1.0,
    loss: Loss = "mse",
    best: bool = False,  # the matrix of the epoch with the lowest loss, before its step
) -> Trained:
    """Adam on the whole window; W is the unmasked attention of the last slot."""
    inputs = model.inputs()
    block = model.identity() if block is None else block.clone()
    optimizer = torch.optim.Adam([block], lr=lr, fused=True)
    lowest, w, last = math.inf, None, model.x.shape[1] - 1
    for _ in range(epochs):
        made = model.attend(inputs, block, draws)
        value, g = objective(made.x_tsa, model.x, lam, loss)
        if best and value < lowest:
            lowest, w = value, made.a_s[last]
        block.grad = model.gradient(inputs, made, g)
        optimizer.step()
    block.grad = None
    if w is None:
        w = model.attend(inputs, block).a_s[last]
    w = w.double()
    return Trained(w / w.sum(1, keepdim=True), block)


def bernoulli(attention: Tensor) -> Tensor:
    """Stays with the probability of its attention; the diagonal always."""
    return _with_diagonal(torch.rand_like(attention) < attention)


def literal(attention: Tensor) -> Tensor:
    """Stays with the probability of its attention, the diagonal too."""
    return torch.rand_like(attention) < attention


def graph(p: Tensor) -> Tensor:
    """M^cur: who is at least as similar as the average of all pairs, by the cosine of signatures [N, D] (15)."""
    direction = F.normalize(p, dim=1)
    cosine = direction @ direction.T
    return cosine >= cosine.mean()


def drop_times(attention: Tensor, share: float = 0.75) -> Tensor:
    """The authors' temporal mask: a fixed share goes, the less attended first; the diagonal stays."""
    flat = attention.flatten(1)
    stay = torch.ones_like(flat, dtype=torch.bool)
    stay.scatter_(1, _sample(1 - flat, int(share * flat.shape[1])), False)
    return _with_diagonal(stay.view_as(attention))


def change_edges(attention: Tensor, edges: Tensor, drop: float = 0.8, add: float = 0.2) -> Tensor:
    """The authors' spatial mask: drop most edges of M^cur, add a few others; one mask for all slots."""
    a, own = attention[-1], torch.eye(len(edges), dtype=torch.bool)
    there, absent = edges & ~own, ~edges & ~own
    stay = edges.flatten().clone()
    stay[_sample(((1 - a) * there).flatten(), int(drop * int(there.sum())))] = False
    stay[_sample((a * absent).flatten(), int(add * int(absent.sum())))] = True
    return _with_diagonal(stay.view_as(edges))


def draws_of(masks: Literal["bernoulli", "fixed-percent", "hadamard"], p: Tensor) -> Draws:
    """The masks by name; `p` are the signatures of the current slot."""
    if masks == "fixed-percent":
        return Draws(drop_times, partial(change_edges, edges=graph(p)))
    return Draws(literal, literal, hadamard=True) if masks == "hadamard" else Draws(bernoulli, bernoulli)


def _sample(weights: Tensor, count: int) -> Tensor:
    """Places drawn without replacement by weight: the least of Exp(1) / weight come first."""
    return (weights / torch.empty_like(weights).exponential_()).topk(count).indices


def _with_diagonal(stay: Tensor) -> Tensor:
    stay.diagonal(dim1=-2, dim2=-1).fill_(True)
    return stay
