"""The memory bank of TSA: the last signatures of every client, with the slots they are from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from acclimate.contracts import Upload


class Seen(NamedTuple):
    """The last signatures of one client, oldest first."""

    slots: Tensor  # [n]
    p: Tensor  # [n, D]

    def at(self, slots: Tensor) -> Tensor:
        """The signature in each slot: the last one until then, before the first that one."""
        return self.p[(torch.searchsorted(self.slots, slots, right=True) - 1).clamp(min=0)]


class Bank(NamedTuple):
    """The memory bank P, cut to the last T exchanges, and the block where it is kept."""

    slots: Tensor  # of the last T exchanges
    seen: dict[int, Seen]
    block: Tensor | None = None

    def remember(self, uploads: Sequence[Upload], window: int) -> Bank:
        """With the signatures of some uploads; those of absent clients may be known already."""
        seen = dict(self.seen)
        for upload in uploads:
            if upload.signature is None:
                raise ValueError(f"TSA needs a signature with every upload; client {upload.client} sent none")
            slots, p = torch.tensor([upload.slot]), upload.signature.detach()[None]
            before = seen.get(upload.client)
            if before is None or upload.slot > int(before.slots[-1]):
                both = (
                    Seen(slots, p)
                    if before is None
                    else Seen(torch.cat([before.slots, slots]), torch.cat([before.p, p]))
                )
                seen[upload.client] = Seen(both.slots[-window:], both.p[-window:])
        return self._replace(seen=seen)
