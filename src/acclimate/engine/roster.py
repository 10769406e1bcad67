"""What a server knows of its clients: who they are and what they work on, none of their data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from acclimate.scenarios.availability import ALWAYS, Availability
from acclimate.scenarios.population import Population, Stream


class Member(NamedTuple):
    """One stream of one client; the position of a member in its roster is its number."""

    client: int
    stream: str
    slots: int | None  # None: until the client ends it


@dataclass(frozen=True)
class Roster:
    """The clients of a phase (`source`) or of a test (`members`)."""

    classes: int
    shape: tuple[int, int, int]  # channels, height, width
    mean: tuple[float, ...]
    std: tuple[float, ...]
    source: tuple[int, ...] = ()
    members: tuple[Member, ...] = ()
    availability: Availability = ALWAYS
    digest: str = ""  # of all that phases can see

    def names(self) -> list[str]:
        """The streams in their order."""
        return list(dict.fromkeys(member.stream for member in self.members))


def roster(people: Population, batch_size: int | str = 1, streams: Sequence[Stream] | None = None) -> Roster:
    """What a server may know of a population: of its source clients and of these streams (by default its test's)."""
    chosen = people.streams if streams is None else streams
    return Roster(
        people.classes,
        people.shape,
        people.mean,
        people.std,
        tuple(people.source),
        tuple(Member(stream.client, stream.name, stream.length(batch_size)) for stream in chosen),
        people.availability,
        people.digest,
    )
