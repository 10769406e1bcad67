"""Whether one system is surely better than another: paired differences over clients and seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import NamedTuple

from acclimate.store.records import Entry
from acclimate.store.run import Run

LEVEL = 0.95
NAMED = "paired Student t-test on the accuracies of clients, over clients and seeds; 95 % intervals"
CAVEAT = (
    "Clients of one seed share a trained model, so an interval is about clients like these with models like these; how "
    "much another training would change is the ± over seeds."
)

Clients = Mapping[tuple[int, int], float]  # seed, client → accuracy


class Difference(NamedTuple):
    """The mean of paired differences, in points, with its interval."""

    mean: float
    low: float
    high: float
    pairs: int

    @property
    def sure(self) -> bool:
        """Whether it is not noise."""
        return self.low > 0 or self.high < 0


def signed(value: float, digits: int = 1) -> str:
    """A difference for people, with its sign.

    >>> signed(-1.25), signed(-0.01), signed(2)
    ('−1.2', '0.0', '+2.0')
    """
    text = f"{value:+.{digits}f}"
    return f"{0:.{digits}f}" if float(text) == 0 else text.replace("-", "−")


def paired(a: Clients, b: Clients) -> Difference | None:
    """The mean of a - b over the clients of both, with its 95 % interval; None with fewer than two pairs.

    >>> found = paired({(0, 1): 0.8, (0, 2): 0.6, (0, 3): 0.7}, {(0, 1): 0.5, (0, 2): 0.5, (0, 3): 0.5})
    >>> "{:.1f} [{:.1f}, {:.1f}] of {}".format(*found)
    '20.0 [-4.8, 44.8] of 3'
    """
    from scipy.stats import t

    each = [100 * (a[key] - b[key]) for key in a if key in b]
    if len(each) < 2:
        return None
    mean, error = statistics.fmean(each), statistics.stdev(each) / math.sqrt(len(each))
    half = float(t.ppf((1 + LEVEL) / 2, len(each) - 1)) * error
    return Difference(mean, mean - half, mean + half, len(each))


def clients(run: Run, entry: Entry, stream: str) -> dict[tuple[int, int], float]:
    """Everybody's accuracy, for `paired`."""
    found = run.client_accuracies(entry, stream)
    return {(seed, client): value for seed, of in found.items() for client, value in of.items()}
