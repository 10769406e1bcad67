"""How much Gaussian noise hides a number (Balle & Wang, ICML 2018, Theorem 8), exactly and for every ε.

The usual formula, √(2 ln(1.25/δ)) / ε, holds for ε < 1 only and adds more than is needed.
"""

from __future__ import annotations

import math
from functools import cache

import torch


@cache
def unit_noise(epsilon: float, delta: float) -> float:
    """The least σ at which a Gaussian mechanism of sensitivity 1 is (ε, δ)-private.

    >>> round(unit_noise(1.0, 1e-5), 2), round(math.sqrt(2 * math.log(1.25 / 1e-5)), 2)
    (3.73, 4.84)
    """
    low, high = 0.0, 1.0
    while _delta(epsilon, high) > delta:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _delta(epsilon, middle) > delta else (low, middle)
    return high  # rounded to the side of more noise


def _delta(epsilon: float, sigma: float) -> float:
    """δ = Φ(1/2σ − εσ) − e^ε Φ(−1/2σ − εσ), Theorem 8 for sensitivity 1."""
    ahead, behind = 1 / (2 * sigma) - epsilon * sigma, -1 / (2 * sigma) - epsilon * sigma
    return math.exp(_log_phi(ahead)) - math.exp(epsilon + _log_phi(behind))  # e^ε alone may overflow


def _log_phi(x: float) -> float:
    return float(torch.special.log_ndtr(torch.tensor(x, dtype=torch.float64)))
