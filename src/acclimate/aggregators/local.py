"""Local: everybody keeps what it uploaded (the identity matrix)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from acclimate.aggregators.mixing import drawn
from acclimate.contracts import Aggregator, Mix, Upload


@dataclass(frozen=True)
class Local(Aggregator[None]):
    """W = I. Not the same as no aggregator: the order is adapt, exchange, predict."""

    def init(self, start: Sequence[Upload]) -> None:
        return None

    def mix(self, state: None, uploads: Sequence[Upload], slot: int) -> Mix:
        if not uploads:
            return Mix([], None)
        identity = torch.eye(len(uploads), dtype=torch.float64)
        return Mix([upload.params for upload in uploads], None, drawn(identity, uploads))
