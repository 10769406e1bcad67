"""A published table beside ours: docs/results/NAME.json from the store, docs/reproduction/NAME.md whole from that.

Nobody types a number. What was measured on another machine, or by older code, stays in the results file as it is until
it is measured again, so a table can grow over many sittings: by pieces, and in a piece by systems and seeds.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from acclimate.data.folders import write_whole
from acclimate.errors import AcclimateError, ConfigError
from acclimate.experiment.published import Published
from acclimate.report.claims import Verdict, verdicts
from acclimate.report.drift import drifts
from acclimate.report.findings import findings
from acclimate.report.markdown import RATES, SWEPT, TRADEOFF, lacking, page, plain, shared_seeds
from acclimate.report.measured import Part, from_file, measured
from acclimate.report.overview import OVERVIEW, PAGES, overview
from acclimate.report.pictures import (
    agreement,
    balance,
    course,
    draw,
    features,
    matrix,
    over_time,
    prior,
    rates,
    steps,
    weights,
)
from acclimate.report.pictures.render import render
from acclimate.report.pictures.sweep import sweep
from acclimate.report.pictures.tradeoff import tradeoff
from acclimate.report.sittings import Sitting, joined
from acclimate.report.table import named_seeds
from acclimate.store.run import Run

FINDINGS = "findings.md"
SHOWN = (
    over_time,
    course,
    steps,
    features,
    matrix,
    weights,
    balance,
    agreement,
    prior,
    rates,
)  # of the kinds of pictures


def write(paper: Published, runs: Mapping[str, Run], docs: Path, overrides: Sequence[str] = ()) -> list[Path]:
    """Write what there is of a table; `runs` are the finished runs by piece.

    `overrides` are what these runs have instead of what the table asks for; the page names them as a deviation.
    """
    results, page_file = docs / "results" / f"{paper.name}.json", docs / PAGES / f"{paper.name}.md"
    found = _before(results)
    otherwise = {"overrides": list(overrides)} if overrides else {}
    found |= {p: joined(found.get(p, []), {**measured(run), **otherwise}) for p, run in runs.items()}
    parts = [Part(paper, piece, one) for piece, one in _in_order(paper, found).items()]
    if not parts:
        raise AcclimateError(f"nothing of {paper.name} is measured, in these runs or in {results}: run it first")
    if unmet := [problem for part in parts for problem in part.unmet()]:
        raise ConfigError(unmet, f"the published table '{paper.name}'")
    pictures = {
        **(_pictures(paper, runs) if paper.pictures and runs else {}),
        **_sweeps(paper, parts),
        **_tradeoff(paper, parts),
    }
    # A sitting of a few rows has nothing of the others to draw: pictures of more stay.
    few = tuple(f"{paper.name}-{plain(piece)}-" for piece in runs if _has_fewer_rows(found[piece]))
    for name in [name for name in pictures if name.startswith(few) and (docs / "figures" / name).exists()]:
        del pictures[name]
    for name, content in pictures.items():
        _save(docs / "figures" / name, content)
    judged = verdicts(paper, {part.piece: part.scores for part in parts})
    _save(results, json.dumps(_results(paper, parts, judged), indent=1))
    shown = sorted(path.name for path in (docs / "figures").glob(f"{paper.name}-*.svg"))
    _save(page_file, page(paper, parts, judged, shown))
    _save(docs / PAGES / OVERVIEW, overview(docs / "results"))
    _save(docs / FINDINGS, findings(docs / "results"))
    return [
        page_file,
        docs / PAGES / OVERVIEW,
        docs / FINDINGS,
        results,
        *(docs / "figures" / name for name in pictures),
    ]


def rest(paper: Published, piece: str, docs: Path) -> list[list[str]]:
    """Overrides for what the results file lacks of a piece, one seed after another.

    If that is all of it, or it was measured otherwise than the table asks for today: no overrides.
    """
    found = _before(docs / "results" / f"{paper.name}.json")
    if piece not in found or drifts([part := Part(paper, piece, found[piece])]):
        return [[]]
    return part.rest()


def _before(results: Path) -> dict[str, list[Sitting]]:
    """What a results file has, by piece."""
    pieces = json.loads(results.read_text(encoding="utf-8"))["pieces"] if results.exists() else {}
    return {piece: from_file(old) for piece, old in pieces.items()}


def _has_fewer_rows(sittings: Sequence[Sitting]) -> bool:
    """Whether the newest sitting lacks rows that earlier ones have."""
    *earlier, newest = sittings
    return any(not one["systems"].keys() <= newest["systems"].keys() for one in earlier)


def _save(path: Path, content: str | bytes) -> None:
    write_whole(path, lambda file: file.write(content.encode() if isinstance(content, str) else content))


def _pictures(paper: Published, runs: Mapping[str, Run]) -> dict[str, bytes]:
    """What there is to draw of the runs, by file: of each piece and stream, and ATP's rates of all pieces together."""
    found = _in_order(paper, runs)
    named = {run.name: f"{paper.name}-{plain(piece)}" for piece, run in found.items()}
    return {
        f"{paper.name}-{RATES}" if kind is rates else f"{named[picture.run]}-{plain(picture.name)}.svg": render(picture)
        for kind, pictures in draw(list(found.values()))
        if kind in SHOWN
        for picture in pictures
    }


def _sweeps(paper: Published, parts: Sequence[Part]) -> dict[str, bytes]:
    """A picture for everything that is varied and every stream, of the values that were run if they are several."""
    by_piece, drawn = {part.piece: part for part in parts}, {}
    for varied, pieces in paper.sweeps.items():
        run = {value: by_piece[piece] for value, piece in pieces.items() if piece in by_piece}
        seeds, streams = (
            shared_seeds(list(run.values())),
            dict.fromkeys(s for part in run.values() for s in part.columns),
        )
        for stream in streams if len(run) > 1 and seeds else ():
            named = {
                row: np.array([part.accuracy(system, stream, seeds) for part in run.values()])
                for system, row in paper.rows.items()
                if any(system in part.systems for part in run.values())
            }
            which = f"-{plain(stream)}" if len(streams) > 1 else ""
            name = f"{paper.name}-{SWEPT}{plain(varied)}{which}"
            title = f"{paper.title}, stream {stream}" if len(streams) > 1 else paper.title
            note = f"Mean over clients and {named_seeds(seeds)}."
            drawn[f"{name}.svg"] = render(sweep(name, title, note, named, varied, list(run)))
    return drawn


def _tradeoff(paper: Published, parts: Sequence[Part]) -> dict[str, bytes]:
    """A picture of two pieces against each other, if both were run: of streams that both have."""
    by_piece = {part.piece: part for part in parts}
    if paper.tradeoff is None or not all(piece in by_piece for piece in paper.tradeoff):
        return {}
    pair, drawn = [by_piece[piece] for piece in paper.tradeoff], {}
    seeds, streams = shared_seeds(pair), [stream for stream in pair[0].columns if stream in pair[1].columns]
    for stream in streams if seeds else ():
        points = {
            row: (pair[0].accuracy(system, stream, seeds), pair[1].accuracy(system, stream, seeds))
            for system, row in paper.rows.items()
            if all(system in part.systems for part in pair)
        }
        which = f"-{plain(stream)}" if len(streams) > 1 else ""
        start, note = points.get(paper.rows.get("none", "")), f"Mean over clients and {named_seeds(seeds)}."
        note += " Dashed: no adaptation; up and to the right of it a method helps under both." * (start is not None)
        name = f"{paper.name}-{TRADEOFF}{which}"
        drawn[f"{name}.svg"] = render(tradeoff(name, paper.title, note, points, paper.tradeoff, start))
    return drawn


def _in_order(paper: Published, pieces: Mapping[str, Any]) -> dict[str, Any]:
    return {piece: pieces[piece] for piece in paper.pieces if piece in pieces}


def _results(paper: Published, parts: Sequence[Part], judged: Sequence[Verdict]) -> dict[str, Any]:
    return {
        "table": paper.name,
        "title": paper.title,
        "source": paper.source,
        "deviations": paper.deviations,
        "claims": [verdict._asdict() for verdict in judged],
        "drifts": drifts(parts),
        "lacking": lacking(paper, parts),
        "gaps": [gap for part in parts for gap in _gaps(part)],
        "pieces": {part.piece: part.sittings for part in parts},
    }


def _gaps(part: Part) -> Iterator[dict[str, Any]]:
    """Every value that the paper prints of a piece, beside ours."""
    for system, stream in itertools.product(part.systems, part.columns):
        theirs, ours = part.paper_mean(system, stream), part.accuracy(system, stream)
        if theirs is not None and not math.isnan(ours):
            yield {"piece": part.piece, "stream": stream, "row": part.paper.rows[system], "paper": theirs, "ours": ours}
