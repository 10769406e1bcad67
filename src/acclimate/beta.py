"""The Beta distribution: what BTFL's integral comes to.

On a device without scipy a quadrature answers for ₂F₁: another 1e-7 here and there, and no other method needs scipy.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NODES = np.linspace(-3.8, 3.8, 41)  # of the quadrature, before they are stretched


def expected_share(a: float, b: float, log_tau: Floats) -> Floats:
    """E[m / (m + (1 − m) τ)] for m ~ Beta(a, b), one for each log τ.

    In closed form a / (a + b) · ₂F₁(1, a + 1; a + b + 1; 1 − 1/τ) / τ, which is exact for τ ≥ 1; below, by reflection,
    one minus the same with a and b exchanged and 1/τ. Where ₂F₁ gives up (a or b in the hundreds) a quadrature answers.

    >>> expected_share(2.0, 3.0, np.array([0.0]))  # τ = 1: the mean of the Beta distribution
    array([0.4])
    """
    special = _scipy_special()
    if special is None:
        return by_quadrature(a, b, log_tau)
    below = log_tau < 0
    first = np.where(below, b, a)
    inverse, argument = np.exp(-np.abs(log_tau)), -np.expm1(-np.abs(log_tau))  # 1/τ and 1 − 1/τ of τ ≥ 1
    with np.errstate(invalid="ignore"):  # 0 · ∞, seen to below
        e: Floats = first / (a + b) * inverse * special.hyp2f1(1.0, first + 1.0, a + b + 1.0, argument)
    e = np.where(below, 1.0 - e, e)
    wrong = ~((e >= 0.0) & (e <= 1.0))  # infinite and undefined ones too
    if wrong.any():
        e[wrong] = by_quadrature(a, b, log_tau[wrong])
    return e


def by_quadrature(a: float, b: float, log_tau: Floats) -> Floats:
    """The same to about 1e-7 for any a and b: the trapezoid rule over logit m, stretched by sinh to reach the tails."""
    t = np.log(a / b) + np.sqrt(1 / a + 1 / b) * np.sinh(NODES)
    log_w = a * _log_sigmoid(t) + b * _log_sigmoid(-t)
    w = np.cosh(NODES) * np.exp(log_w - log_w.max())
    shares: Floats = np.exp(_log_sigmoid(t - log_tau[:, None])) @ (w / w.sum())
    return shares


def by_trapezoid(a: float, b: float, log_tau: Floats, squash: float) -> Floats:
    """The same as BTFL's authors take it: τ drawn into [1 / (1 + squash), 1 + squash], and 100 points of [0.01, 0.99].

    The part of the distribution that is left out is missing from the result.
    """
    grown = 1 + squash * np.tanh(np.expm1(np.minimum(np.abs(log_tau), 50.0)))
    tau = np.where(log_tau < 0, 1 / grown, grown)[:, None]
    m, special = np.linspace(0.01, 0.99, 100), _scipy_special()
    log_beta = special.betaln(a, b) if special else math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    pdf = np.exp((a - 1) * np.log(m) + (b - 1) * np.log1p(-m) - log_beta)
    pdf[[0, -1]] /= 2
    shares: Floats = (m / (m + (1 - m) * tau)) @ pdf * (m[1] - m[0])
    return shares


def _scipy_special() -> Any:
    try:
        from scipy import special
    except ImportError:
        return None
    return special


def _log_sigmoid(t: Floats) -> Any:
    return -np.logaddexp(0.0, -t)
