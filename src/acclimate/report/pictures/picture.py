"""What a picture is: a Vega-Lite specification with its title and what there is to say about it.

A kind of picture is a module of this folder with `HEADING` and `LEAD` for the page, `has` (does this run have what it
takes?) and `draw`. It draws all its runs, each by itself or side by side. Numbers come from `Run`, colours of text and
paper from `look`, so the same specification is printed, shown at night and read on a phone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from acclimate.errors import AcclimateError
from acclimate.store.run import Run

Spec = dict[str, Any]  # Vega-Lite, as its documentation has it


class Asked(NamedTuple):
    """What a reader wants to see of what cannot all be shown; None: the first seed and client, the last slot."""

    seed: int | None = None
    slot: int | None = None
    client: int | None = None

    def seed_of(self, run: Run) -> int:
        """The seed, if the run has it."""
        if self.seed is None:
            return run.seeds[0]
        if self.seed not in run.seeds:
            raise AcclimateError(f"{run.name} has no seed {self.seed}; choose one of {some('seed', run.seeds)}")
        return self.seed


@dataclass(frozen=True)
class Picture:
    """One picture of a run, or of several side by side (then it is the first one's)."""

    run: str
    name: str  # what it shows and of which stream: the end of a file's name
    title: str
    notes: tuple[str, ...]
    spec: Spec


class Kind(Protocol):
    """A module of this folder."""

    HEADING: str
    LEAD: str  # what to look for

    def has(self, run: Run) -> bool:
        """Whether a run has what it takes."""

    def draw(self, runs: Sequence[Run], asked: Asked) -> Iterator[Picture]:
        """The pictures of runs that all have it."""


def source(*runs: Run) -> str:
    """Where numbers come from."""
    names = [run.name if run.finished else f"{run.name} (not finished)" for run in runs]
    return f"Run{'s' * (len(runs) > 1)} {', '.join(names)}"


def some(what: str, numbers: Iterable[int]) -> str:
    """Many numbers in few words.

    >>> some("client", [1, 2, 3, 5]), some("seed", [0])
    ('clients 1–3, 5', 'seed 0')
    """
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    words = ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}–{p[-1]}" for p in parts)
    return f"{what} {words}" if sum(map(len, parts)) == 1 else f"{what}s {words}"


def of_stream(run: Run, stream: str) -> str:
    """The end of a title, where a run has several streams.

    A run with one stream needs no name for it.
    """
    return f", stream {stream}" if len(run.streams) > 1 else ""
