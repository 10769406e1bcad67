"""Whether what a paper leads one to expect holds in our runs, from paired differences of client accuracies."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from acclimate.experiment.published import MEAN, Claim, Published, tests

ENOUGH = 2.0  # standard errors that a difference must exceed
ALIKE = 1.0  # points below which two systems are near each other, however sure their difference is

Clients = Mapping[tuple[int, int], float]  # seed, client → accuracy


class Scores(NamedTuple):
    """All clients of a piece that was run."""

    streams: Mapping[str, Mapping[str, Clients]]  # stream → system → clients
    groups: Mapping[tuple[int, int], str] = {}  # who is in one

    def of(self, stream: str, group: str) -> dict[str, Clients]:
        """System → clients, of one group if it is named; of several streams their mean on each client."""
        if stream != MEAN:
            found = dict(self.streams[stream])
        else:
            found = _means([self.streams[each] for each in tests(self.streams)])
        return {
            system: {key: value for key, value in clients.items() if group in ("", self.groups.get(key))}
            for system, clients in found.items()
        }


class Verdict(NamedTuple):
    """What came of one claim in one piece."""

    piece: str
    expected: str
    verdict: str
    difference: float  # in points
    error: float  # its standard error over clients
    stream: str = ""  # if the run has several
    group: str = ""  # if the claim is about one

    @property
    def place(self) -> str:
        """Where: the piece and, if there are several, which part of it."""
        return ", ".join(filter(None, (self.piece, self.stream, self.group)))


def verdicts(paper: Published, found: Mapping[str, Scores]) -> list[Verdict]:
    """Every claim in every piece that was run."""
    return [
        verdict
        for claim in paper.claims
        for piece in claim.piece or paper.pieces
        if piece in found
        for verdict in _judged(paper, claim, piece, found[piece])
    ]


def _judged(paper: Published, claim: Claim, piece: str, scores: Scores) -> Iterator[Verdict]:
    for stream, group in itertools.product(claim.stream or scores.streams, claim.group or [""]):
        systems = scores.of(stream, group)
        if not all(systems.values()):  # nobody of that group meets this stream, or old results without its clients
            continue
        if len(systems) < 2 or not systems.keys() >= {*filter(None, [claim.best]), *(claim.near or ())}:
            continue  # not all were run
        for text, measured in _compared(paper, claim, systems):
            verdict = (_near if claim.near else _above)(*measured)
            yield Verdict(piece, text, verdict, *measured, stream if len(scores.streams) > 1 else "", group)


def _means(streams: list[Mapping[str, Clients]]) -> dict[str, Clients]:
    """System → clients, each with the mean over the streams it has."""
    found: dict[str, dict[tuple[int, int], list[float]]] = defaultdict(lambda: defaultdict(list))
    for systems in streams:
        for system, clients in systems.items():
            for key, value in clients.items():
                found[system][key].append(value)
    return {s: {key: statistics.fmean(values) for key, values in by.items()} for s, by in found.items()}


def difference(a: Clients, b: Clients) -> tuple[float, float]:
    """The mean of a − b over the clients of both, in points, and its standard error.

    >>> "{:.1f} ± {:.1f}".format(*difference({(0, 1): 0.8, (0, 2): 0.6}, {(0, 1): 0.5, (0, 2): 0.5}))
    '20.0 ± 10.0'
    """
    paired = [100 * (a[client] - b[client]) for client in a if client in b]
    error = statistics.stdev(paired) / math.sqrt(len(paired)) if len(paired) > 1 else math.inf
    return statistics.fmean(paired), error


def _compared(paper: Published, claim: Claim, systems: Mapping[str, Clients]) -> list[tuple[str, tuple[float, float]]]:
    """What a claim says in words, and what was measured: one pair of systems after another, of those that were run."""
    row = paper.rows
    if claim.near:
        pairs = {f"{row[claim.near[0]]} near {row[claim.near[1]]}": claim.near}
    elif claim.best:
        best = systems[claim.best]
        others = [name for name in row if name in systems and name != claim.best and systems[name].keys() & best.keys()]
        strongest = min(others, key=lambda name: difference(best, systems[name])[0], default=None)
        pairs = {f"{row[claim.best]} best (next: {row[strongest]})": (claim.best, strongest)} if strongest else {}
    else:
        both = itertools.product(claim.higher, claim.lower)
        pairs = {f"{row[a]} above {row[b]}": (a, b) for a, b in both if {a, b} <= systems.keys()}
    told = {text: (systems[a], systems[b]) for text, (a, b) in pairs.items()}
    return [(text, difference(a, b)) for text, (a, b) in told.items() if a.keys() & b.keys()]


def _above(d: float, error: float) -> str:
    if abs(d) <= ENOUGH * error:
        return "within noise"
    return "holds" if d > 0 else "contradicted"


def _near(d: float, error: float) -> str:
    if abs(d) <= ENOUGH * error:
        return f"holds: within {ENOUGH:g} s.e."
    return f"holds: below {ALIKE:g} point" if abs(d) < ALIKE else "contradicted"
