"""A published table beside ours, in words and Markdown: the page docs/reproduction/NAME.md."""

from __future__ import annotations

import math
import re
import shlex
import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from acclimate.experiment.published import MEAN, ONLY, Cross, Published, Value, Values
from acclimate.report.claims import Verdict
from acclimate.report.drift import drifts
from acclimate.report.measured import Part, mean_of
from acclimate.report.overview import FIGURES, NOTHING, OVERVIEW, RESULTS, counted, grid
from acclimate.report.table import PhaseTraffic, by_remark, named_seeds
from acclimate.report.text import traffic
from acclimate.store.records import Entry

CLAIMS = (
    "They are what the paper, or the method where no paper has tried it, leads one to expect, checked on paired "
    "differences of client accuracies (mean ± standard error over clients, in points; within two standard errors a "
    "difference is noise):"
)
RATES, SWEPT, TRADEOFF = "rates.svg", "by-", "tradeoff"  # pictures of several pieces together


def page(paper: Published, parts: Sequence[Part], verdicts: Sequence[Verdict], pictures: Sequence[str]) -> str:
    """Everything about a table, what a reader wants first at the top; `pictures` are the names of files."""
    of_all = tuple(f"{paper.name}-{kind}" for kind in (TRADEOFF, RATES, SWEPT))
    missing = lacking(paper, parts)
    lines = [
        f"# {paper.title}",
        "",
        f"Source: {paper.source}.",
        "",
        f"Written by `acclimate reproduce {paper.name}` from [what was measured]({RESULTS}{paper.name}.json), where "
        "per-client accuracies, configurations and choices are; no number here is typed. Accuracies are in %, after "
        f"{_which_round(paper)}; a gap is ours minus the paper's. [All tables]({OVERVIEW}).",
        "",
        *(_side_by_side(paper, parts) if len(paper.pieces) > 1 else []),
        *(text for undisturbed in paper.losses for text in _losses(paper, parts, undisturbed)),
        *([f"Not run yet: {', '.join(missing)}.", ""] if missing else []),
        *_claims(verdicts),
        *_listed("Discussion", paper.discussion),
        *_listed("Deviations", [*paper.deviations, *drifts(parts)]),
        *_shown([name for name in pictures if name.startswith(of_all)]),
        *(text for part in parts for text in _piece(part, pictures)),
        *_listed("Remarks", _remarks(parts)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _which_round(paper: Published) -> str:
    chosen = Entry("", selected=True).title
    if any(row.endswith(chosen) for row in paper.rows):
        return "the round that is best on source validation data, where a row does not say that it is the last"
    return "the last round"


def lacking(paper: Published, parts: Sequence[Part]) -> list[str]:
    """What is not run: pieces, and of others some rows or seeds."""
    by_piece = {part.piece: part for part in parts}
    return [text for piece in paper.pieces for text in (by_piece[piece].lacking() if piece in by_piece else [piece])]


def plain(piece: str) -> str:
    """A piece as part of a file's name."""
    return re.sub(r"[^\w.]+", "-", piece)


def shared_seeds(parts: Sequence[Part]) -> list[int]:
    """Those of all rows of all pieces: one seed more at one value of what is varied would look like its effect."""
    return sorted(set[int].intersection(*(set(part.seeds) for part in parts))) if parts else []


def _side_by_side(paper: Published, parts: Sequence[Part]) -> list[str]:
    """Methods x pieces; a piece with several streams has a column for each."""
    caption, by_piece, seeds = _caption(paper), {part.piece: part for part in parts}, None
    shared = shared_seeds(parts)
    if paper.sweeps and shared and any(s["seeds"] != shared for part in parts for s in part.systems.values()):
        seeds = shared
        caption = f"{caption.removesuffix(':')}, {named_seeds(shared)} of all pieces:"
    columns = {piece: _columns(paper, piece, by_piece.get(piece)) for piece in paper.pieces}
    rows = []
    for system, row in paper.rows.items():
        cells = [row]
        for piece, streams in columns.items():
            part = by_piece.get(piece)
            for stream in streams:
                if part and system in part.systems:
                    theirs, ours = part.paper_mean(system, stream), part.accuracy(system, stream, seeds)
                    cells.append(_beside(paper, theirs, ours))
                else:
                    printed = paper.printed(row, piece)
                    cells.append(_beside(paper, mean_of(printed.get(stream, printed.get(ONLY))), None))
        rows.append(cells)
    head = [
        f"{piece}, {stream}" if len(streams) > 1 else piece for piece, streams in columns.items() for stream in streams
    ]
    return [caption, "", *grid(["method", *head], rows), ""]


def _losses(paper: Published, parts: Sequence[Part], undisturbed: str) -> list[str]:
    """What every method loses in each piece where something was done to it, and in all of them but the worst."""
    by_piece, stream = {part.piece: part for part in parts}, parts[0].columns[-1]
    disturbed = [piece for piece in paper.losses[undisturbed] if piece in by_piece]
    if undisturbed not in by_piece or not disturbed:
        return []
    rows, whole = [], by_piece[undisturbed]
    for system, row in paper.rows.items():
        gaps = [_gap(by_piece[piece], whole, system, stream) for piece in disturbed]
        second = [f"{sorted(gaps)[1]:+.2f}"] if len(gaps) > 1 else []
        rows.append([row, *(f"{gap:+.2f}" for gap in gaps), *second])
    head = ["method", *disturbed, *(["all but the worst, at least"] if len(disturbed) > 1 else [])]
    return [f"Ours, points against the same method in the piece {undisturbed}:", "", *grid(head, rows), ""]


def _gap(part: Part, whole: Part, system: str, stream: str) -> float:
    """In points, over the seeds that both have."""
    if not (system in part.systems and system in whole.systems):
        return math.nan
    seeds = sorted(set(part.systems[system]["seeds"]) & set(whole.systems[system]["seeds"]))
    return part.accuracy(system, stream, seeds) - whole.accuracy(system, stream, seeds) if seeds else math.nan


def _columns(paper: Published, piece: str, part: Part | None) -> list[str]:
    """The streams of a piece; of one that was not run, those that the paper names."""
    if part:
        return part.columns
    return list(dict.fromkeys(stream for row in paper.values for stream in paper.printed(row, piece))) or [ONLY]


def _piece(part: Part, pictures: Sequence[str]) -> list[str]:
    paper, several = part.paper, len(part.streams) > 1
    tables = []
    for stream in part.streams:
        title = f", stream {stream}" if several else ""
        tables += _crossed(part, stream, paper.cross, title) if paper.cross else []
        tables += [f"Stream {stream}:", ""] if several and not paper.by_shift else []
        tables += _by_shift(part, stream, title) if paper.by_shift else _detail(part, stream)
        tables += ["", *_by_group(part, stream, title)]
    return [
        f"## {part.piece}",
        "",
        *_sittings(part),
        *(_by_stream(part) if several else []),
        *tables,
        *dict.fromkeys(
            f"- {traffic(PhaseTraffic(**phase))}" for sitting in part.sittings for phase in sitting["phases"]
        ),
        "",
        *_shown([name for name in pictures if name.startswith(f"{paper.name}-{plain(part.piece)}-")]),
    ]


def _sittings(part: Part) -> list[str]:
    """How each was made; where they are several, what each one has."""
    said, several = [], len(part.sittings) > 1
    for sitting in part.sittings:
        command = ["acclimate", "reproduce", part.paper.name, *sitting.get("overrides", []), "--only", part.piece]
        by_seeds: dict[str, dict[str, str]] = {}  # a system that is tested twice has two rows, and is named once
        for title, row in part.paper.rows.items():
            if system := sitting["systems"].get(title):
                by_seeds.setdefault(named_seeds(system["seeds"]), {}).setdefault(system["of"], row)
        everybody = {system["of"] for system in part.systems.values()}
        what = [
            f"{seeds} of {', '.join(rows.values())}" if several and rows.keys() != everybody else seeds
            for seeds, rows in by_seeds.items()
        ]
        said.append(f"{'- ' * several}`{shlex.join(command)}`: {'; '.join([*what, _made(sitting)])}.")
    return [*said, ""]


def _by_stream(part: Part) -> list[str]:
    rows = [
        [
            part.paper.rows[system],
            *(
                _beside(part.paper, part.paper_mean(system, stream), part.accuracy(system, stream))
                for stream in part.columns
            ),
        ]
        for system in part.systems
    ]
    of = "by stream, means over groups:" if part.by_group else "by stream:"
    return [f"{_caption(part.paper).removesuffix(':')}, {of}", "", *grid(["method", *part.columns], rows), ""]


def _crossed(part: Part, stream: str, cross: Cross, title: str) -> list[str]:
    rows = [
        [
            row,
            *(f"{part.accuracy(f'{aggregator}+{adapter}', stream):.2f}" for aggregator in cross.aggregators),
        ]
        for adapter, row in cross.adapters.items()
    ]
    return [f"Ours, adapters x aggregators{title}:", "", *grid(["adapter", *cross.aggregators.values()], rows), ""]


def _detail(part: Part, stream: str) -> list[str]:
    theirs = {s: None if isinstance(value := part.printed(s, stream), dict) else value for s in part.systems}
    printed = any(value is not None for value in theirs.values())
    rows = []
    for system, value in theirs.items():
        cell, paper = part.cell(system, stream), mean_of(value)
        ours = _percent(cell["accuracy"])
        gap = NOTHING if paper is None else f"{100 * statistics.fmean(cell['accuracy']) - paper:+.2f}"
        rows.append(
            [
                part.paper.rows[system],
                *([_printed(value), ours, gap] if printed else [ours]),
                *(f"{100 * statistics.fmean(cell[key]):.2f}" for key in ("balanced_accuracy", "worst_decile")),
                _share(cell["harmed"]),
            ]
        )
    beside = ["paper", "ours", "gap"] if printed else ["ours"]
    return grid(["method", *beside, "class-balanced", "worst 10 %", "harmed"], rows)


def _share(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None and not math.isnan(value)]
    return f"{100 * statistics.fmean(known):.0f} %" if known else NOTHING


def _by_shift(part: Part, stream: str, title: str) -> list[str]:
    ours = {system: part.shifts(system, stream) for system in part.systems}
    rows = []
    for system, by_shift in ours.items():
        theirs = _mapping(part.printed(system, stream))
        cells = [_beside(part.paper, mean_of(theirs.get(s)), _mean(by_shift.get(s))) for s in _names(ours)]
        rows.append([part.paper.rows[system], *cells])
    return [f"{_caption(part.paper).removesuffix(':')}{title}:", "", *grid(["method", *_names(ours)], rows)]


def _by_group(part: Part, stream: str, title: str) -> list[str]:
    ours = {system: part.groups(system, stream) for system in part.systems}
    if not any(ours.values()):
        return []
    theirs = {} if part.paper.by_shift else {s: _mapping(part.printed(s, stream)) for s in part.systems}
    rows = []
    for system, by_group in ours.items():
        cells = []
        for group in _names(ours):
            measured = _percent(by_group[group]) if group in by_group else NOTHING
            value = theirs.get(system, {}).get(group)
            if value is None and group == MEAN:
                value = part.paper_mean(system, stream)
            cells.append(f"{_printed(value)} / {measured}" if any(theirs.values()) else measured)
        rows.append([part.paper.rows[system], *cells])
    caption = "Paper / ours" if any(theirs.values()) else "Ours"
    return [f"{caption}, by group{title}:", "", *grid(["method", *_names(ours)], rows), ""]


def _claims(verdicts: Sequence[Verdict]) -> list[str]:
    if not verdicts:
        return []
    rows = [[v.place, v.expected, v.verdict, f"{v.difference:+.2f} ± {v.error:.2f}"] for v in verdicts]
    return [
        "## Expectations",
        "",
        f"{counted(verdicts)} {CLAIMS}",
        "",
        *grid(["piece", "expected", "verdict", "difference"], rows),
        "",
    ]


def _remarks(parts: Sequence[Part]) -> list[str]:
    """What there is to say about systems, once for all pieces that it is true of."""
    return by_remark(
        {
            part.piece: by_remark({title: system["remarks"] for title, system in part.everything.items()})
            for part in parts
        }
    )


def _made(run: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    return f"run `{run['name']}`, {_duration(run)}, excluding cached work; {versions}"


def _duration(run: dict[str, Any]) -> str:
    started, finished = (datetime.fromisoformat(run[key]) for key in ("started", "finished"))
    worked = run.get("worked")
    if worked is None:  # earlier code did not count the work of a sitting
        return f"{(finished - started).total_seconds() / 60:.1f} minutes from start to end, including pauses"
    return f"{worked / 60:.1f} minutes of work"


def _shown(names: Sequence[str]) -> list[str]:
    return [line for name in names for line in (f"![{name.removesuffix('.svg')}]({FIGURES}{name})", "")]


def _listed(title: str, lines: Sequence[str]) -> list[str]:
    return [f"## {title}", "", *(f"- {line}" for line in lines), ""] if lines else []


def _names(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(name for each in found.values() for name in each))


def _mapping(value: Values | None) -> dict[str, Value]:
    return value if isinstance(value, dict) else {}


def _percent(accuracies: Sequence[float]) -> str:
    spread = f" ± {100 * statistics.stdev(accuracies):.2f}" if len(accuracies) > 1 else ""
    return f"{100 * statistics.fmean(accuracies):.2f}{spread}"


def _printed(value: Value | None) -> str:
    return f"{value[0]:.2f} ± {value[1]:.2f}" if isinstance(value, tuple) else _number(value)


def _caption(paper: Published) -> str:
    return "Paper / ours:" if paper.values else "Ours:"


def _beside(paper: Published, theirs: float | None, ours: float | None) -> str:
    return f"{_number(theirs)} / {_number(ours)}" if paper.values else _number(ours)


def _mean(accuracies: Sequence[float] | None) -> float | None:
    return 100 * statistics.fmean(accuracies) if accuracies else None


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"
