"""BTFL: a Bayesian balance of personal and global knowledge for every test image (Zhou & Liu, KDD 2025)."""

from __future__ import annotations

import math
from functools import partial
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.beta import Floats, by_trapezoid, expected_share
from acclimate.contracts import Adapter
from acclimate.models.head import features, head_of
from acclimate.options import Positive
from acclimate.params import Params

_HALF = math.atanh(0.5)  # above it, tanh is rounded to 1


class _Seen(NamedTuple):
    """The test information of a batch, local first and global second."""

    log_y: Floats  # log Y_l and log Y_g [2, B, classes]
    h: Floats  # H_l and H_g [2, B]
    log_q: Floats  # log Q_l and log Q_g [2, B]


class BTFL(Adapter):
    """Mix a personal and the global head by e, the chance that an image is external, given all before it and itself.

    A Beta prior remembers how many images looked external (first parameter) and internal (second), the roles of the
    paper's appendix and code; the paper's (11) has them exchanged. A batch is predicted with the prior before it, then
    remembered. Nothing is optimised. `preset: code` follows the authors' code: shrunk estimators, its exponents and
    squashed likelihood ratio (`squash`, k_b), a trapezoid rule, a geometric mixture, λ/10 of a pruned prior.
    """

    needs = ("head", "densities", "entropies")

    def __init__(
        self,
        net: nn.Module,
        *,
        head: Tensor,
        densities: dict[str, Tensor],
        entropies: dict[str, Tensor],
        preset: Literal["paper", "code"] = "paper",
        lam: Positive = 16.0,
        squash: Positive = 4.0,
    ) -> None:
        super().__init__(net.requires_grad_(False))
        self.code, self.lam, self.k_b = preset == "code", lam, squash
        self.w_p, self.w_g = head, head_of(net)[1]
        p = torch.stack([densities["local"], densities["global"]]).double().clamp(1e-12, 1 - 1e-12)  # P(ẑ_i = 0)
        p0, p1 = (0.6 * p + 0.2, 0.8 - 0.6 * p) if self.code else (p, 1 - p)
        # log Π_i p_i^[ẑ_i = 0] (1 − p_i)^[ẑ_i = 1], eq. (6), as a constant and a slope in ẑ
        self.constant, self.slope = p0.log().sum(1, keepdim=True).numpy(), (p1.log() - p0.log()).numpy()
        self.h_bar = np.array([[float(entropies["local"])], [float(entropies["global"])]])  # H̄_l and H̄_g
        self.prior = torch.ones(2, dtype=torch.float64)  # Beta(m; 1, 1)

    def moving(self) -> Params:
        return {"prior": self.prior}

    def forward(self, x: Tensor) -> Tensor:
        seen = self._look(x)
        logits = self._inject(seen)
        self._remember(seen)
        return logits

    def adapt(self, x: Tensor) -> None:
        self._remember(self._look(x))

    def predict(self, x: Tensor) -> Tensor:
        return self._inject(self._look(x))

    @torch.no_grad()
    def _look(self, x: Tensor) -> _Seen:
        """Information extraction, §4.2. From here on numpy: on arrays this small it takes half of torch's time."""
        z, g = features(self.net, x, self.w_g)
        logits = np.array([F.linear(z, self.w_p).numpy(), g.numpy()], dtype=np.float64)
        logits -= logits.max(-1, keepdims=True)
        log_y = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        h = -(np.exp(log_y) * log_y).sum(-1)
        z_hat = (z.numpy() > _HALF).astype(np.float64)  # Round[tanh z], eq. (5); what is negative counts as 0
        return _Seen(log_y, h, self.constant + self.slope @ z_hat.T)

    def _inject(self, seen: _Seen) -> Tensor:
        """Characteristic update and dual posterior injection, §4.4 and §4.5: log Y_int of a batch."""
        (alpha, beta), d = self.prior.tolist(), self.slope.shape[1]
        if self.code:
            usual = np.array([np.maximum(self.h_bar[0], 1e-9), [math.log(100)]])
            log_u = np.minimum((seen.h - usual) / usual, 600.0)
        else:
            log_u = 1 - self.h_bar / np.maximum(seen.h, 1e-9)  # (H − H̄) / H, eq. (14)
        likelihoods = np.exp(log_u) * seen.log_q
        log_tau = (likelihoods[0] - likelihoods[1]) / d  # log τ̂, eq. (15)
        integral = partial(by_trapezoid, squash=self.k_b) if self.code else expected_share
        share = integral(alpha, beta, log_tau)
        self.figures = {"e": torch.from_numpy(share)}
        (log_y_l, log_y_g), e = seen.log_y, share[:, None]  # e = ∫ m̂ pdf(m̂ | z) dm̂, eq. (21)
        if self.code:
            mix = e * log_y_g + (1 - e) * log_y_l
        else:
            e = e.clip(1e-300, 1 - 1e-16)  # for the logarithms
            mix = np.logaddexp(np.log(e) + log_y_g, np.log1p(-e) + log_y_l)  # Y_int = e Y_g + (1 − e) Y_l
        return torch.from_numpy(mix).to(self.w_g.weight.dtype)

    def _remember(self, seen: _Seen) -> None:
        """Historical update, §4.3."""
        tau, above, below = seen.log_q[0] - seen.log_q[1], seen.h > self.h_bar, seen.h < self.h_bar
        external = np.count_nonzero((tau < 0) & above[0] & below[1])  # eq. (10) and (11)
        internal = np.count_nonzero((tau > 0) & below[0] & above[1])
        alpha, beta = (before + new for before, new in zip(self.prior.tolist(), (external, internal), strict=True))
        if (total := alpha + beta) > self.lam:  # Algorithm 1
            k = self.lam / 10 if self.code else 1.0
            alpha, beta = 1 + k * alpha / total, 1 + k * beta / total
        self.prior.numpy()[:] = alpha, beta
        self.figures["prior"] = self.prior.clone()
