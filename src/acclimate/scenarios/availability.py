"""When test clients take part in exchanges: always, unless a scenario says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from acclimate.options import Count, Share

HERE, LATE, AWAY = 0, 1, 2


@dataclass(frozen=True)
class Availability:
    """Who exchanges in which slot. Whoever does not still gets its batch and predicts it, alone.

    A client is there with `probability`, independently in every slot; with a `burst` above one its presences and
    absences last that many times as long, at the same share of time. Of the exchanges it could take part in, the share
    `late` reaches the server `delay` slots later, and brings nothing back. Clients exchange at different rates with
    `periods`: the k-th of the test clients every `periods[k % len(periods)]` slots.
    """

    probability: Share = 1.0
    burst: Annotated[float, Ge(1)] = 1.0
    late: Share = 0.0
    delay: Count = 1
    periods: tuple[Count, ...] = (1,)

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (a misspelt key in an experiment is an error)

    @property
    def full(self) -> bool:
        """Whether everybody exchanges in every slot."""
        return self.probability == 1 and self.late == 0 and set(self.periods) <= {1}

    def table(self, seed: int, client: int, position: int, slots: int) -> NDArray[np.int64]:
        """HERE, LATE or AWAY for each slot of a client, the `position`-th of the test clients.

        >>> Availability(periods=(1, 3)).table(seed=0, client=7, position=1, slots=6).tolist()
        [2, 2, 0, 2, 2, 0]
        """
        rng = np.random.default_rng([seed, client, 11])
        draws, punctual = rng.random(slots), rng.random(slots) >= self.late
        there = np.empty(slots, dtype=bool)
        now = rng.random() < self.probability
        for t in range(slots):  # a chain whose share of time is `probability` whatever the burst
            turns = (1 - self.probability if now else self.probability) / self.burst
            now = now ^ bool(draws[t] < turns)
            there[t] = now
        period = self.periods[position % len(self.periods)] if self.periods else 1
        there &= (np.arange(slots) + 1) % period == 0
        return np.where(there, np.where(punctual, HERE, LATE), AWAY)


ALWAYS = Availability()
