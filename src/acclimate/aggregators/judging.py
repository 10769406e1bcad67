"""An aggregator that does not trust every client: a rule judges the uploads, then the aggregator inside mixes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from acclimate.aggregators.fedavg import FedAvg
from acclimate.contracts import Aggregator, Mix, Upload
from acclimate.robust.rule import Rule
from acclimate.trees import Nest


class Wary(NamedTuple):
    """The state of the aggregator inside, and what the rule remembers."""

    of: Nest
    memory: Nest


@dataclass(frozen=True)
class Judging(Aggregator[Wary], Rule):
    """The aggregator `of`, with what a rule makes of uploads instead of what clients sent.

    Whoever is set aside gets no download. The matrix of the aggregator inside is over judged uploads: it is not drawn.
    """

    of: Aggregator[Any] = field(default_factory=FedAvg, kw_only=True)

    @property
    def signs(self) -> bool:
        return self.of.signs

    @property
    def remembers(self) -> bool:
        return self.of.remembers

    def init(self, start: Sequence[Upload]) -> Wary:
        return Wary(self.of.init(start), None)

    def mix(self, state: Wary, uploads: Sequence[Upload], slot: int) -> Mix:
        if not uploads:
            return Mix([], Wary(self.of.mix(state.of, [], slot).state, state.memory))
        sent = [list(upload.params.values()) for upload in uploads]
        judged = self.judge([upload.client for upload in uploads], sent, state.memory)
        trusted = [
            upload._replace(params=dict(zip(upload.params, own, strict=True)), weight=upload.weight * count)
            for upload, own, count in zip(uploads, judged.sent, judged.counts, strict=True)
            if count > 0
        ]
        inside = self.of.mix(state.of, trusted, slot)
        downloads = iter(inside.downloads)
        now = [count for upload, count in zip(uploads, judged.counts, strict=True) if upload.slot == slot]
        mixed = [next(downloads) if count > 0 else None for count in now]
        return Mix(mixed, Wary(inside.state, judged.memory))
