"""Phases whose server does not trust every client; `acclimate.robust` has a file for each rule.

Median and trimmed mean (Yin et al., ICML 2018), norm clipping (Sun et al., 2019), Krum and Multi-Krum
(Blanchard et al., NeurIPS 2017) and reputation (Xu & Lyu, FL-ICML 2021).
"""

from __future__ import annotations

from dataclasses import dataclass

from acclimate.robust import clipped, krum, median, multi_krum, reputation, trimmed
from acclimate.training.judging import Judging


@dataclass(frozen=True)
class Median(median.Median, Judging):
    """What the median of all is counts as everybody's reply."""


@dataclass(frozen=True)
class Trimmed(trimmed.Trimmed, Judging):
    """Of each number the extremes do not count."""


@dataclass(frozen=True)
class Clipped(clipped.Clipped, Judging):
    """Nobody moves the mean further than half of the clients do."""


@dataclass(frozen=True)
class Krum(krum.Krum, Judging):
    """The reply nearest to its neighbours counts alone."""


@dataclass(frozen=True)
class MultiKrum(multi_krum.MultiKrum, Judging):
    """The replies nearest to their neighbours count."""


@dataclass(frozen=True)
class Reputation(reputation.Reputation, Judging):
    """Replies count by how well their clients' have agreed with everybody's so far."""
