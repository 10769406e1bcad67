"""docs/reproduction/README.md: what holds, what is noise, what is contradicted and what is not run, by paper."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acclimate.experiment.published import Outline, outlines
from acclimate.report.claims import Verdict
from acclimate.report.measured import from_file
from acclimate.report.sittings import all_seeds

OVERVIEW = "README.md"
PAGES = "reproduction"  # the folder of all pages
FIGURES, RESULTS = "../figures/", "../results/"  # as seen from a page
HOLDS, NOISE, CONTRADICTED = VERDICTS = ("holds", "within noise", "contradicted")
NOTHING = "–"
HEAD = """# Reproduction

Published tables beside what this code measures. An expectation is what a paper, or a method where no paper has tried
it, leads one to expect: one system above another, the best of all, two alike. It is checked on paired differences of
client accuracies; a difference within two standard errors is noise. The distance is the median of |ours − the paper's|
over all values that the paper prints, in points. All of this is written by `acclimate reproduce NAME`; no number is
typed.
"""


@dataclass(frozen=True)
class Result:
    """A published table and what its results file says, if there is one."""

    outline: Outline
    found: dict[str, Any] | None

    @property
    def pieces(self) -> dict[str, Any]:
        """What was run of it."""
        return self.found["pieces"] if self.found else {}

    @property
    def verdicts(self) -> list[Verdict]:
        return [Verdict(**plain) for plain in self.found["claims"]] if self.found else []

    @property
    def missing(self) -> list[str]:
        """What is not run of it: pieces, and of others some rows or seeds."""
        pieces = [piece for piece in self.outline.pieces if piece not in self.pieces]
        lacking: list[str] = (self.found or {}).get("lacking", pieces)  # earlier code wrote whole pieces only
        return lacking

    def row(self) -> list[str]:
        systems = [
            s for piece in self.pieces.values() for sitting in from_file(piece) for s in sitting["systems"].values()
        ]
        gaps = [abs(gap["ours"] - gap["paper"]) for gap in (self.found or {}).get("gaps", [])]
        return [
            f"[{self.outline.title}]({self.outline.name}.md)",
            f"{sum(piece in self.pieces for piece in self.outline.pieces)} of {len(self.outline.pieces)}",
            ", ".join(map(str, sorted(all_seeds(systems)))),
            f"{statistics.median(gaps):.1f}" if gaps else NOTHING,
            *_tallied(self.verdicts),
        ]


def overview(results: Path) -> str:
    """The page, from all results files."""
    by_paper: dict[str, list[Result]] = {}
    for outline in outlines():
        file = results / f"{outline.name}.json"
        found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
        by_paper.setdefault(outline.paper, []).append(Result(outline, found))
    return "\n".join([HEAD, *_summary(by_paper), *(line for item in by_paper.items() for line in _paper(*item))])


def counted(verdicts: Sequence[Verdict]) -> str:
    """How many of each kind, as a sentence.

    >>> counted([Verdict("all", "A best", "holds", 1.0, 0.1), Verdict("all", "B best", "contradicted", -1.0, 0.1)])
    'Expectations that hold: 1 of 2; within noise: 0; contradicted: 1.'
    """
    holds, noise, contradicted = _tallied(verdicts)
    return f"Expectations that hold: {holds} of {len(verdicts)}; within noise: {noise}; contradicted: {contradicted}."


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown.

    >>> grid(["a", "b"], [["1", "2"]])
    ['| a | b |', '| --- | --- |', '| 1 | 2 |']
    """
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def _summary(by_paper: dict[str, list[Result]]) -> Iterator[str]:
    rows = [
        [paper, f"{sum(bool(result.pieces) for result in of)} of {len(of)}", *_tallied(_all_verdicts(of))]
        for paper, of in by_paper.items()
    ]
    yield from grid(["paper", "tables run, at least in part", *VERDICTS], rows)
    yield from ["", counted(_all_verdicts([result for of in by_paper.values() for result in of])), ""]


def _paper(paper: str, results: Sequence[Result]) -> Iterator[str]:
    run, not_run = [r for r in results if r.pieces], [r for r in results if not r.pieces]
    yield from [f"## {paper}", ""]
    if run:
        yield from grid(["table", "pieces run", "seeds", "distance", *VERDICTS], [result.row() for result in run])
        yield ""
    for kind in (CONTRADICTED, NOISE):
        found = [(r.outline.name, v) for r in run for v in r.verdicts if _kind(v) == kind]
        if found:
            yield from [f"{kind.capitalize()} (difference in points ± its standard error):", ""]
            yield from (
                f"- [{name}]({name}.md), {v.place}: {v.expected}; {v.difference:+.2f} ± {v.error:.2f}"
                for name, v in found
            )
            yield ""
    if drifted := [f"[{r.outline.name}]({r.outline.name}.md)" for r in run if r.found and r.found.get("drifts")]:
        yield from [
            f"Measured otherwise than the table asks for today: {', '.join(drifted)}; see their deviations.",
            "",
        ]
    left = [f"{r.outline.name} ({', '.join(r.missing)})" for r in run if r.missing]
    left += [f"{r.outline.name} ({r.outline.title})" for r in not_run]
    if left:
        yield from [f"Not run: {'; '.join(left)}.", ""]


def _all_verdicts(results: Iterable[Result]) -> list[Verdict]:
    return [verdict for result in results for verdict in result.verdicts]


def _tallied(verdicts: Iterable[Verdict]) -> list[str]:
    """How many of each kind."""
    kinds = Counter(map(_kind, verdicts))
    return [str(kinds[kind]) for kind in VERDICTS]


def _kind(verdict: Verdict) -> str:
    return verdict.verdict.partition(":")[0]  # 'holds: within 2 s.e.' says why
