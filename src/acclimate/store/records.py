"""What a run answers: one record for each question, so that nobody who draws or prints knows SQL or JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

TEST = "test"  # the phase of a unit after the last round
ROUND = "round "  # and the number of an earlier one that was kept and tested too
SELECTED = "best validation"  # the same after the round that is best on source validation data
UNADAPTED = f"{SELECTED}, unadapted"  # and there without adaptation: what it is compared with

Shifts = dict[int, dict[int, str]]  # client → slot → shift


class Entry(NamedTuple):
    """What has a line of its own: a system after its last round, or after the round best on validation data.

    >>> Entry("tent").title, Entry("tent", selected=True).title
    ('tent', 'tent (best validation)')
    """

    system: str
    selected: bool = False
    adapted: bool = True  # False: the model of a selected round as it is, which has no line

    @classmethod
    def of(cls, system: str, phase: str) -> Entry:
        """What a unit of the store has measured."""
        return cls(system, phase != TEST, phase != UNADAPTED)

    @property
    def phase(self) -> str:
        """The phase of its units in the store."""
        return (SELECTED if self.adapted else UNADAPTED) if self.selected else TEST

    @property
    def title(self) -> str:
        """For people, and for the rows of published tables."""
        return f"{self.system} ({SELECTED})" if self.selected else self.system


class Counts(NamedTuple):
    """Images that were predicted right, and images with a label."""

    correct: float
    seen: float


class Costs(NamedTuple):
    """Of all slots of a system together."""

    slots: int
    seconds: float
    bytes_up: float
    bytes_down: float
    missed: float  # exchanges without the client
    left_out: float  # uploads that were not finite
    stepped_in: float | None = None  # slots at which a guard did; None: there is none


class Moment(NamedTuple):
    """One client in one slot."""

    entry: Entry
    seed: int
    client: int
    slot: int
    accuracy: float


class Drawn(NamedTuple):
    """What a method handed over to be drawn; client -1: the server's."""

    entry: Entry
    seed: int
    client: int
    slot: int
    content: dict[str, Any]  # tensors by name


class Phase(NamedTuple):
    """One phase on one seed, with what it sends in bytes per taking-part client and round."""

    label: str
    seed: int
    rounds: int
    down: float
    up: float
    replies: int
    left_out: int

    @property
    def position(self) -> int:
        """Its place among the phases of its systems."""
        return int(self.label.partition(":")[0])

    @property
    def name(self) -> str:
        return self.label.partition("#")[0].partition(":")[2]


class Learnt(NamedTuple):
    """A metric of a round of a phase, as a mean over those who took part."""

    phase: str  # its label
    seed: int
    metric: str
    round: int
    value: float


class Reached(NamedTuple):
    """How well a system did on test data after a round that was kept."""

    system: str
    seed: int
    stream: str
    round: int
    accuracy: float
    loss: float  # mean cross-entropy


class Chosen(NamedTuple):
    """The accuracies on source validation data among which one was chosen, in their order."""

    seed: int
    accuracies: dict[str, float]
    best: str


@dataclass(frozen=True)
class Holder:
    """A source client: how many images it has, and of which classes."""

    client: int
    train: int
    validation: int
    labels: list[int]


@dataclass(frozen=True)
class Met:
    """A test client in one stream: of which classes its images are, and what it meets, in order."""

    client: int
    stream: str
    labels: list[int] | None  # None: it has no labels
    segments: list[tuple[str, int]]  # shift, number of images

    @property
    def images(self) -> int:
        return sum(number for _, number in self.segments)


@dataclass(frozen=True)
class People:
    """Everybody of one seed."""

    classes: int
    source: list[Holder]
    streams: list[Met]
    remarks: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, plain: dict[str, Any]) -> People:
        """From a note."""
        streams = [
            Met(**{**met, "segments": [(name, number) for name, number in met["segments"]]}) for met in plain["streams"]
        ]
        return cls(plain["classes"], [Holder(**one) for one in plain["source"]], streams, plain["remarks"])
