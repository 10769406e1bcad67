"""What the server and its clients tell each other in a phase and in a test: plain records, whatever carries them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from acclimate.contracts import Replies, Reply
from acclimate.engine.known import Own
from acclimate.options import Count
from acclimate.trees import Parcel, Shared


class Lost(NamedTuple):
    """A client that did not answer; only executors that reach other machines report one."""

    reason: str


# ---------------------------------------------------------------------------------------------------- phases


class Part(NamedTuple):
    """A client's task in one round."""

    id: int
    round: int
    message: Shared
    state: Parcel | None  # None: it takes part for the first time
    own: tuple[Own, ...] = ()


class Took(NamedTuple):
    """What came of it."""

    reply: Reply
    state: Parcel | None
    bytes_down: int
    bytes_up: int


class Folded(NamedTuple):
    """The replies of several clients, folded in their order."""

    replies: Replies
    states: dict[int, Parcel]
    traffic: dict[int, tuple[int, int]]  # bytes down and up
    refused: dict[int, str]  # clients whose reply was turned away, and why; they are among those left out


# ---------------------------------------------------------------------------------------------------- tests


@dataclass(frozen=True)
class Test:
    """How streams are met: a property of the test, not of the adapter."""

    __test__ = False  # not a test case, whatever pytest thinks of the name

    batch_size: Count | Literal["all"] = 20  # all: one slot with everything, for offline methods
    reset: Literal["never", "batch", "shift"] = "never"  # shift: the adapter is told the boundaries
    sync_every: Count = 1  # slots between exchanges, where there is an aggregator
    validation: bool = False  # source clients' validation parts are one more stream, unlabelled like every other
    convergence: bool = False  # every kept round of the last phase is tested too, and losses are noted


class Score(NamedTuple):
    """What one slot of one stream measured; slot -1: the whole stream."""

    client: int
    stream: str
    slot: int
    shift: str
    values: dict[str, float]


class Figure(NamedTuple):
    """Something to draw: from an adapter (client ≥ 0) or an aggregator (client -1)."""

    client: int
    stream: str
    slot: int
    values: bytes


class Paused(NamedTuple):
    """Where a client stands in its stream."""

    slot: int  # the next one
    state: Parcel | None  # the adapter's; None at the start, at the end, and while a worker keeps it
    tally: list[list[int]]  # correct and seen images of each class
    welcomed: Parcel | None = None  # states that phases made for a newcomer, by phase


class Standing(NamedTuple):
    """All that is to be known of a client between two messages, where no process waits for the second."""

    paused: Paused
    ahead: Parcel | None = None  # the adapter's state after adapting to the slot whose exchange it waits for
    values: dict[str, float] = {}  # noqa: RUF012  (never changed)
    drawn: Figure | None = None


class Alone(NamedTuple):
    """Go on with a stream without an exchange, until its end or until some seconds have passed."""

    member: int
    paused: Paused | None
    seconds: float
    own: tuple[Own, ...] = ()


class Begin(NamedTuple):
    """Start a stream, or go on where it was saved, up to the upload of the next exchange."""

    member: int
    paused: Paused | None
    stop: int | None  # the slot of that exchange; None: there is none
    own: tuple[Own, ...] = ()


class GoOn(NamedTuple):
    """Take the download of an exchange, predict, and go on up to the upload of the next."""

    member: int
    download: Parcel | None
    stop: int | None


class Save(NamedTuple):
    """Hand over where a stream stands."""

    member: int


class Stretch(NamedTuple):
    """What a client did since it was last asked."""

    slot: int  # where it stands: it waits with its upload, or has ended its stream
    ended: bool
    scores: list[Score]
    figures: list[Figure]
    upload: Parcel | None = None  # None: it has none to offer, or what it has is not finite
    start: Parcel | None = None  # what it would have shared before any adaptation
    paused: Paused | None = None  # where it was told to hand it over
