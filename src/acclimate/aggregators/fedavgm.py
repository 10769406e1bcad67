"""FedAvgM at test time: the mean of all uploads, with momentum on the server (Hsu et al., 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from acclimate.aggregators.mixing import mean, origin
from acclimate.contracts import Aggregator, Mix, Upload
from acclimate.options import Decay, Positive
from acclimate.params import Params

AVERAGED = ("running_mean", "running_var", "num_batches_tracked")  # statistics have no momentum, as in training
PROBABILITIES = "prior"  # what adapters call a label distribution that they share


class State(NamedTuple):
    """The server's model and its velocity."""

    w: Params
    v: Params


@dataclass(frozen=True)
class FedAvgM(Aggregator[State]):
    """v ← β v + (w − Σ_k (n_k / n) w_k), w ← w − lr v; everybody gets w.

    Momentum overshoots, and may take what cannot be negative below zero. Which tensors these are is known by their
    names, not by the values that happen to be there: statistics of batch norms, variances among them, are averaged
    without momentum, and label distributions (`prior`) stop at zero.
    """

    revision: ClassVar[int] = 1  # every entry that no upload had below zero stopped there

    beta: Decay = 0.9  # β
    lr: Positive = 1.0  # of the server

    def init(self, start: Sequence[Upload]) -> State:
        return State(origin(start), {})

    def mix(self, state: State, uploads: Sequence[Upload], slot: int) -> Mix:
        if not uploads:
            return Mix([], state)
        average = mean([upload.params for upload in uploads], [upload.weight for upload in uploads])
        w, v = dict(average), dict(state.v)
        for name in average:
            if name in state.w and not name.endswith(AVERAGED) and average[name].is_floating_point():
                delta = state.w[name] - average[name]
                v[name] = self.beta * v[name] + delta if name in v else delta
                moved = state.w[name] - self.lr * v[name]
                w[name] = moved.clamp(min=0) if name == PROBABILITIES else moved
        return Mix([w] * len(uploads), State(w, v))
