"""docs/findings.md: what was learnt that the papers do not say, each sentence with the table that shows it.

Sentences are in `findings.yaml`, their numbers in docs/results: nobody types one. A number stands where braces are, by
piece and our name of a system, and by stream where a run has several (else their mean):

    {label/tent}                   an accuracy in %
    {label/tent - label/none}      a difference in points ± its standard error over clients, where both are of one piece
    {paper label/tent}             what the paper prints
    {atp-table5:label/tent}        of another table than the first that the sentence names

A sentence is shown when all that it rests on (`when`) is measured and holds: `a > b`, by more than two standard errors
or, of two pieces, more than a point; `a >= b`, b is not above a; `a ~ b`, alike, within that or a point. Where one does
not hold, `otherwise` is shown instead, if there is one.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import yaml

from acclimate.errors import ConfigError
from acclimate.experiment.published import MEAN, Names, published
from acclimate.experiment.schema import check
from acclimate.report.claims import ALIKE, ENOUGH, difference
from acclimate.report.measured import Part, from_file
from acclimate.report.overview import OVERVIEW, PAGES

FILE = Path(__file__).with_name("findings.yaml")
SIGNS = r" (>=|>|~) "
HEAD = f"""# Findings

What we learnt that the papers do not say: which of their claims hold here, which hang on a tuning, which readings they
leave open. Every sentence links the table that shows it. Accuracies are in %, differences in points ± their standard
error over clients. Written by `acclimate reproduce` from what was measured; no number is typed, and a sentence is not
shown where what was measured does not bear it out. [All tables]({PAGES}/{OVERVIEW}).
"""


@dataclass(frozen=True)
class Finding:
    """A sentence, the tables it rests on, and when it is true."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012

    about: str  # a heading
    of: Names
    says: str
    when: Names = field(default_factory=list)
    otherwise: str | None = None
    fresh: bool = False  # only from what was measured as its table asks for today


class _Place(NamedTuple):
    """A system in a piece of a table."""

    table: str
    piece: str
    system: str
    stream: str


class _Unmeasured(Exception):
    """A sentence rests on what was not run."""


def findings(results: Path, file: Path = FILE) -> str:
    """The page, from all results files."""
    measured, shown, waiting = _Measured(results), dict[str, list[str]](), Counter[str]()
    for one in read(file):
        try:
            if one.fresh:
                measured.need_fresh(one.of)
            told = [measured.holds(condition, one.of[0]) for condition in one.when]
            text = one.says if all(told) else one.otherwise
            if text is not None:
                links = ", ".join(f"[{table}]({PAGES}/{table}.md)" for table in one.of)
                sentence = f"- {measured.filled(text, one.of[0])} ({links})"
                shown.setdefault(one.about, []).append(sentence)
        except _Unmeasured:
            waiting.update(one.of)
    lines = [line for about, of in shown.items() for line in (f"## {about}", "", *of, "")]
    if waiting:
        named = ", ".join(f"{table} ({number})" for table, number in sorted(waiting.items()))
        lines.append(f"Sentences that wait for a run, by table: {named}.")
    return "\n".join([HEAD, *lines]).rstrip() + "\n"


def read(file: Path = FILE) -> list[Finding]:
    """All sentences; a misspelt key is an error."""
    found, wrong = [], []
    for number, raw in enumerate(yaml.safe_load(file.read_text(encoding="utf-8"))):
        values, _, problems = check(Finding, raw, str(number))
        wrong += problems
        found += [] if problems else [Finding(**values)]
    if wrong:
        raise ConfigError(wrong, file.name)
    return found


def places(finding: Finding) -> Iterator[_Place]:
    """Every system in every piece that a sentence speaks of."""
    for text in (finding.says, finding.otherwise or ""):
        for inside in re.findall(r"\{(.+?)\}", text):
            yield from (_place(one, finding.of[0]) for one in inside.removeprefix("paper ").split(" - "))
    for condition in finding.when:
        yield from (_place(one, finding.of[0]) for one in re.split(SIGNS, condition)[::2])


class _Measured:
    """What the results files say."""

    def __init__(self, results: Path) -> None:
        self.results = results
        self._tables: dict[str, dict[str, Part]] = {}

    def need_fresh(self, tables: Sequence[str]) -> None:
        """That they were measured as they ask for today."""
        for table in tables:
            file = self.results / f"{table}.json"
            if not file.exists() or json.loads(file.read_text(encoding="utf-8")).get("drifts"):
                raise _Unmeasured

    def filled(self, text: str, table: str) -> str:
        """A sentence with its numbers."""
        return re.sub(r"\{(.+?)\}", lambda found: self._number(found[1], table), text)

    def holds(self, condition: str, table: str) -> bool:
        """Whether one is above another, or both are alike."""
        left, sign, right = re.split(SIGNS, condition)
        points, error = self._difference(_place(left, table), _place(right, table))
        least = ALIKE if error is None else ENOUGH * error
        return {">": points > least, ">=": points >= -least, "~": abs(points) <= max(least, ALIKE)}[sign]

    def _number(self, inside: str, table: str) -> str:
        if inside.startswith("paper "):
            place = _place(inside.removeprefix("paper "), table)
            part = self._part(place)
            printed = part.paper_mean(place.system, self._stream(part, place))
            if printed is None:
                raise ConfigError([f"{inside}: the paper prints no such value"], FILE.name)
            return f"{printed:.1f}"
        left, _, right = inside.partition(" - ")
        if not right:
            return f"{self._accuracy(_place(left, table)):.1f}"
        points, error = self._difference(_place(left, table), _place(right, table))
        return f"{points:+.1f}".replace("-", "−") + (f" ± {error:.1f}" if error is not None else "")

    def _difference(self, a: _Place, b: _Place) -> tuple[float, float | None]:
        """In points, with its standard error where clients can be paired."""
        if (a.table, a.piece, a.stream) != (b.table, b.piece, b.stream):
            seeds = set(self._part(a).systems[a.system]["seeds"]) & set(self._part(b).systems[b.system]["seeds"])
            if not seeds:
                raise _Unmeasured
            return self._accuracy(a, sorted(seeds)) - self._accuracy(b, sorted(seeds)), None
        part = self._part(a)
        clients = part.scores.of(self._stream(part, a), "")
        if not clients[a.system].keys() & clients[b.system].keys():
            raise _Unmeasured
        return difference(clients[a.system], clients[b.system])

    def _accuracy(self, place: _Place, seeds: Sequence[int] | None = None) -> float:
        part = self._part(place)
        return part.accuracy(place.system, self._stream(part, place), seeds)

    def _stream(self, part: Part, place: _Place) -> str:
        return place.stream or (MEAN if MEAN in part.columns else part.streams[0])

    def _part(self, place: _Place) -> Part:
        if place.table not in self._tables:
            file = self.results / f"{place.table}.json"
            if not file.exists():
                raise _Unmeasured
            paper, found = published(place.table), json.loads(file.read_text(encoding="utf-8"))["pieces"]
            pieces = {piece: one for piece, one in found.items() if piece in paper.pieces}
            self._tables[place.table] = {piece: Part(paper, piece, from_file(one)) for piece, one in pieces.items()}
        part = self._tables[place.table].get(place.piece)
        if part is None or place.system not in part.systems:
            raise _Unmeasured
        return part


def _place(text: str, table: str) -> _Place:
    """`atp-table5:label/tent/test`, the table and the stream being optional."""
    before, colon, rest = text.strip().partition(":")
    piece, _, system = (rest if colon else before).partition("/")
    name, _, stream = system.partition("/")
    return _Place(before if colon else table, piece, name, stream)
