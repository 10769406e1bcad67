"""What methods note for themselves in a process, client by client, while there is room."""

from __future__ import annotations

from collections import OrderedDict

from acclimate import trees
from acclimate.trees import Nest

MOST_BYTES = 512 * 2**20  # in one process


class Notes:
    """Notes of the clients that were here, in the order of their last visit; the longest absent make room for others.

    >>> import torch
    >>> notes = Notes(most=8)
    >>> notes.of(0)[0] = torch.zeros(2); notes.count(0)
    >>> notes.of(1)[0] = torch.zeros(1); notes.count(1)
    >>> notes.of(0), notes.of(1)
    ({}, {0: tensor([0.])})
    """

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self._notes: OrderedDict[int, dict[int, Nest]] = OrderedDict()
        self._sizes: dict[int, int] = {}
        self._total = 0

    def of(self, client: int) -> dict[int, Nest]:
        """A client's notes, to be changed in place."""
        self._notes.setdefault(client, {})
        self._notes.move_to_end(client)
        return self._notes[client]

    def count(self, client: int) -> None:
        """Look how large a client's notes have become."""
        self._total -= self._sizes.pop(client, 0)
        if not self._notes[client]:
            del self._notes[client]
            return
        self._sizes[client] = trees.nbytes(self._notes[client])
        self._total += self._sizes[client]
        while self._total > self._most:
            longest_absent, _ = self._notes.popitem(last=False)
            self._total -= self._sizes.pop(longest_absent, 0)
