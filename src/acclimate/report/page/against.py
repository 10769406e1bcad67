"""Against the paper: where a run reproduces a piece of a published table, its values beside ours."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from acclimate.errors import ConfigError
from acclimate.experiment.catalog import tables
from acclimate.experiment.published import Piece, Published, published
from acclimate.report.claims import verdicts
from acclimate.report.measured import Part, measured
from acclimate.report.page.html import Html, tag
from acclimate.report.page.summary import row, table
from acclimate.report.significance import signed
from acclimate.store.run import Run


def against(run: Run) -> list[Html]:
    """A table for every published table that the run is a piece of; nothing if there is none, or nothing is tested."""
    if not run.entries:
        return []
    return [part for paper, piece in pieces(run) for part in _beside(Part(paper, piece, [measured(run)]))]


def pieces(run: Run) -> Iterator[tuple[Published, str]]:
    """The published tables that this run is a piece of, or some systems and seeds of one."""
    systems = ", ".join(system["name"] for system in run.experiment["systems"])
    own = [f"seeds={run.experiment['seeds']}", f"systems=[{systems}]"]
    for name, path in tables().items():
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
        used = [raw.get("experiment"), *(p.get("experiment") for p in raw["pieces"].values() if isinstance(p, dict))]
        if run.experiment["name"] in {Path(file).stem for file in used if file}:  # only these are worth reading whole
            paper = published(name)
            yield from ((paper, piece) for piece, one in paper.pieces.items() if _name(one, own) == run.name)


def _name(piece: Piece, overrides: list[str]) -> str | None:
    """What its run is called; None where it has no such systems."""
    try:
        return piece.read(overrides).run_name
    except ConfigError:
        return None


def _missing(part: Part) -> str:
    lacking = part.lacking()
    return f" Not in this run: {', '.join(lacking)}." if lacking else ""


def _beside(part: Part) -> list[Html]:
    rows = []
    for system in part.systems:
        for stream in part.columns:
            theirs, ours = part.paper_mean(system, stream), part.accuracy(system, stream)
            gap = "–" if theirs is None else signed(ours - theirs, 2)
            paper = "–" if theirs is None else f"{theirs:.2f}"
            rows.append(row([part.paper.rows[system], stream, paper, f"{ours:.2f}", gap]))
    head = ["method", "stream", "paper, %", "ours, %", "gap"]
    found = [
        tag("h3", f"{part.paper.title}: {part.piece}"),
        tag("p", f"Source: {part.paper.source}.{_missing(part)}"),
        table(f"{part.paper.title}: the paper's values and ours", head, rows, sortable=True),
    ]
    judged = verdicts(part.paper, {part.piece: part.scores})
    if judged:
        lines = [row([v.expected, v.place, v.verdict, f"{signed(v.difference, 2)} ± {v.error:.2f}"]) for v in judged]
        found.append(table("What one would expect", ["expected", "where", "verdict", "difference ± s.e."], lines))
    if part.paper.deviations:
        found += [tag("h4", "Deviations"), tag("ul", [tag("li", line) for line in part.paper.deviations])]
    return found
