"""What the server of a test goes on with, where clients may be absent or late."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from acclimate.contracts import Upload
from acclimate.engine.roster import Member

MOST_ROWS = 64  # of a matrix that is kept to be drawn
MOST_BYTES = 16_000_000  # of all matrices of a stream that are kept to be drawn
UNTOLD = 1000  # slots of a stream that lasts until its client ends it, as far as room for figures goes

Arriving = tuple[int, Upload]  # the slot in which an upload reaches the server, and the upload


class Exchanging(NamedTuple):
    """The aggregator's state, and the last uploads of clients.

    `kept` is by member, oldest first; it stays empty where everybody is always there, or the aggregator wants none.
    """

    state: Any
    kept: dict[int, list[Arriving]]

    def absent(self, sent: Mapping[int, Upload], t: int) -> list[Upload]:
        """The last upload of each client that sends nothing now, if it has reached the server."""
        return [
            there[-1]
            for m, uploads in self.kept.items()
            if m not in sent and (there := [upload for arrival, upload in uploads if arrival <= t])
        ]


def keep(
    kept: Mapping[int, list[Arriving]], sent: Mapping[int, Upload], late: Mapping[int, Upload], t: int, delay: int
) -> dict[int, list[Arriving]]:
    """What the server has, or will have, of each client; what a newer upload has replaced is forgotten."""
    found = {m: list(uploads) for m, uploads in kept.items()}
    found |= {m: [(t, upload)] for m, upload in sent.items()}
    for m, upload in late.items():
        found[m] = [*found.get(m, []), (t + delay, upload)]
    for m, uploads in found.items():
        newest = max((i for i, (arrival, _) in enumerate(uploads) if arrival <= t), default=0)
        found[m] = uploads[newest:]
    return dict(sorted(found.items()))


def kept_every(members: Sequence[Member], sync_every: int) -> int:
    """Of how many exchanges of a stream the matrix of one is kept, so that all of them stay below a bound.

    >>> everybody = [Member(client, "test", 100) for client in range(2_000)]
    >>> kept_every(everybody[:60], 1), kept_every(everybody, 1), kept_every(everybody, 10)
    (1, 4, 1)
    """
    exchanges = max(UNTOLD if member.slots is None else member.slots for member in members) // sync_every
    wanted = exchanges * min(len(members), MOST_ROWS) * len(members) * 4
    return max(1, min(exchanges, -(-wanted // MOST_BYTES)))


def bounded(figures: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What an aggregator wants drawn, as it is kept: linear in the number of clients, however many there are.

    Numbers become float32. Of a matrix with many rows some are kept, evenly spread; rows that are all equal, as
    FedAvg's, are one.

    >>> kept = bounded({"weights": torch.full((3, 3), 1 / 3).double(), "clients": torch.arange(3)})
    >>> kept["weights"].shape, kept["weights"].dtype, kept["clients"].tolist()
    (torch.Size([1, 3]), torch.float32, [0, 1, 2])
    """
    found = {name: tensor.float() if tensor.dtype == torch.float64 else tensor for name, tensor in figures.items()}
    if "weights" not in found or "clients" not in found:
        return found
    weights, clients = found["weights"], found["clients"]
    if len(weights) > MOST_ROWS:
        chosen = torch.linspace(0, len(weights) - 1, MOST_ROWS).round().long()
        weights, clients = weights[chosen], clients[chosen]
    if len(weights) > 1 and bool((weights == weights[0]).all()):
        weights = weights[:1]
    return {**found, "weights": weights, "clients": clients}
