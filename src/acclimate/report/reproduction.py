"""A published table beside ours: docs/results/NAME.json from the store, a section of docs/reproduction.md from that.

Nobody types a number. A piece that was measured on another machine, or by older code, stays in the results file as it
is until it is measured again, so a table can grow piece by piece over many sittings.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from acclimate.data.folders import write_whole
from acclimate.errors import AcclimateError
from acclimate.experiment.published import MEAN, Cross, Printed, Published
from acclimate.report import charts
from acclimate.report.claims import Verdict, verdicts
from acclimate.report.figures import draw
from acclimate.report.overview import grid, heading, with_overview
from acclimate.report.table import (
    Line,
    PhaseTraffic,
    by_remark,
    client_accuracies,
    named_seeds,
    shift_accuracies,
    table,
)
from acclimate.report.text import traffic
from acclimate.store.database import Store

HEAD = """# Reproduction

Published tables beside what this code measures. Every section is written by `acclimate reproduce NAME` from the store
of its runs; per-client accuracies, configurations and choices are in [results/](results/). Accuracies are in %, after
the last round; a gap is ours minus the paper's.
"""
CLAIMS = (
    "What the paper, or the method where no paper has tried it, leads one to expect, checked on paired differences of "
    "client accuracies (mean ± standard error over clients, in points; within two standard errors a difference is "
    "noise):"
)
NOTHING = "–"
RATES, SWEPT = "rates.svg", "by-"  # pictures of all pieces together


def write(paper: Published, runs: Mapping[str, tuple[Store, dict[str, Any]]], docs: Path) -> list[Path]:
    """Write what there is of a table; `runs` are the finished runs by piece, with the store they are in."""
    results, page = docs / "results" / f"{paper.name}.json", docs / "reproduction.md"
    before = json.loads(results.read_text(encoding="utf-8"))["pieces"] if results.exists() else {}
    now = {piece: _measured(store, run) for piece, (store, run) in runs.items()}
    parts = [_Part(paper, piece, found) for piece, found in _in_order(paper, before | now).items()]
    if not parts:
        raise AcclimateError(f"nothing of {paper.name} is measured, in these runs or in {results}: run it first")
    pictures = {**(_pictures(paper, runs) if paper.pictures and runs else {}), **_sweeps(paper, parts)}
    for name, content in pictures.items():
        _save(docs / "figures" / name, content)
    done = _Done(paper, parts, sorted(path.name for path in (docs / "figures").glob(f"{paper.name}-*.svg")))
    _save(results, json.dumps(done.results(), indent=1))
    old = page.read_text(encoding="utf-8") if page.exists() else HEAD
    section = "\n".join(done.section())
    marked = re.compile(rf"<!-- {paper.name} -->.*?<!-- /{paper.name} -->\n", re.DOTALL)
    new = marked.sub(lambda _: section, old) if marked.search(old) else f"{old.rstrip()}\n\n{section}"
    _save(page, with_overview(new, docs / "results"))
    return [page, results, *(docs / "figures" / name for name in pictures)]


def _save(path: Path, content: str) -> None:
    write_whole(path, lambda file: file.write(content.encode()))


def _pictures(paper: Published, runs: Mapping[str, tuple[Store, dict[str, Any]]]) -> dict[str, str]:
    """What there is to draw of the runs, by file: of each piece, and ATP's rates of all pieces together."""
    found = {piece: run for piece, (_, run) in _in_order(paper, runs).items()}
    named = {run["name"]: f"{paper.name}-{_plain(piece)}" for piece, run in found.items()}
    store, _ = next(iter(runs.values()))
    return {
        f"{paper.name}-{RATES}" if "-rates" in file else named[run] + file.removeprefix(run): content
        for run, files in draw(store, list(found.values())).items()
        for file, content in files.items()
    }


def _sweeps(paper: Published, parts: Sequence[_Part]) -> dict[str, str]:
    """A picture for everything that is varied, of the values that were run if they are several."""
    by_piece, drawn = {part.piece: part for part in parts}, {}
    for varied, pieces in paper.sweeps.items():
        run = {value: by_piece[piece] for value, piece in pieces.items() if piece in by_piece}
        seeds = _shared_seeds(list(run.values()))
        named = {
            row: np.array([part.accuracy(system, seeds) for part in run.values()])
            for system, row in paper.rows.items()
            if any(system in part.systems for part in run.values())
        }
        if len(run) > 1 and seeds:
            notes = [f"Mean over clients and {named_seeds(seeds)}."]
            drawn[f"{paper.name}-{SWEPT}{_plain(varied)}.svg"] = charts.lines(
                paper.title, notes, named, [], varied, "accuracy (%)", list(run)
            )
    return drawn


def _shared_seeds(parts: Sequence[_Part]) -> list[int]:
    """Those of all pieces: one seed more at one value of what is varied would look like an effect of that value."""
    return sorted(set[int].intersection(*(set(part.found["seeds"]) for part in parts))) if parts else []


def _shown(names: Sequence[str]) -> list[str]:
    return [line for name in names for line in (f"![{name.removesuffix('.svg')}](figures/{name})", "")]


def _plain(piece: str) -> str:
    """A piece as part of a file's name."""
    return re.sub(r"[^\w.]+", "-", piece)


def _in_order(paper: Published, pieces: Mapping[str, Any]) -> dict[str, Any]:
    return {piece: pieces[piece] for piece in paper.pieces if piece in pieces}


def _measured(store: Store, run: dict[str, Any]) -> dict[str, Any]:
    """All that is worth keeping of a run, as plain data."""
    found = table(store, run)
    stream = found.streams[0]

    def system(line: Line) -> dict[str, Any]:
        clients = client_accuracies(store, run["id"], line.system, stream)
        return {
            "streams": {name: vars(cell) for name, cell in line.cells.items()},
            "ms_per_batch": line.ms_per_batch,
            "clients": {str(seed): {str(c): value for c, value in by.items()} for seed, by in clients.items()},
            "shifts": shift_accuracies(store, run["id"], line.system, stream),
            "remarks": line.remarks,
        }

    return {
        **{key: run[key] for key in ("name", "started", "finished", "versions", "experiment")},
        "worked": store.worked(run["id"]),
        "seeds": found.seeds,
        "stream": stream,
        "phases": [asdict(phase) for phase in found.phases],
        "systems": {line.system: system(line) for line in found.lines},
    }


@dataclass(frozen=True)
class _Part:
    """A piece that was run, and what was measured."""

    paper: Published
    piece: str
    found: dict[str, Any]

    @cached_property
    def systems(self) -> dict[str, Any]:
        """Those with a row in the table."""
        return {name: system for name, system in self.found["systems"].items() if name in self.paper.rows}

    def cell(self, system: str) -> dict[str, list[float]]:
        cells: dict[str, list[float]] = self.systems[system]["streams"][self.found["stream"]]
        return cells

    def accuracy(self, system: str, seeds: Sequence[int]) -> float:
        """Over some of the seeds, in %; not a number where a system was not tested."""
        if system not in self.systems:
            return math.nan
        by_seed = dict(zip(self.found["seeds"], self.cell(system)["accuracy"], strict=True))
        return 100 * statistics.fmean(by_seed[seed] for seed in seeds)

    def clients(self, system: str) -> dict[tuple[int, int], float]:
        by_seed = self.systems[system]["clients"]
        return {(int(seed), int(client)): value for seed, by in by_seed.items() for client, value in by.items()}

    def section(self, pictures: Sequence[str]) -> list[str]:
        seeds = ", ".join(map(str, self.found["seeds"]))
        command = f"`acclimate reproduce {self.paper.name} --only {_quoted(self.piece)}`"
        return [
            f"### {self.piece}",
            "",
            f"{command}, seeds {seeds}; {_made(self.found)}.",
            "",
            *(self._crossed(self.paper.cross) if self.paper.cross else []),
            *(self._by_shift() if self.paper.by_shift else self._detail()),
            "",
            *(f"- {traffic(PhaseTraffic(**phase))}" for phase in self.found["phases"]),
            "",
            *_shown([name for name in pictures if name.startswith(f"{self.paper.name}-{_plain(self.piece)}-")]),
        ]

    def _crossed(self, cross: Cross) -> list[str]:
        seeds = self.found["seeds"]
        rows = [
            [title, *(f"{self.accuracy(f'{aggregator}+{adapter}', seeds):.2f}" for aggregator in cross.aggregators)]
            for adapter, title in cross.adapters.items()
        ]
        return ["Ours, adapters x aggregators:", "", *grid(["adapter", *cross.aggregators.values()], rows), ""]

    def _detail(self) -> list[str]:
        printed = any(self.paper.printed(system, self.piece) is not None for system in self.systems)
        beside = ["paper", "ours", "gap"] if printed else ["ours"]
        rows = []
        for system in self.systems:
            cell, paper = self.cell(system), self.paper.mean(system, self.piece)
            ours = _percent(cell["accuracy"])
            gap = NOTHING if paper is None else f"{100 * statistics.fmean(cell['accuracy']) - paper:+.2f}"
            rows.append(
                [
                    self.paper.rows[system],
                    *([_printed(self.paper.printed(system, self.piece)), ours, gap] if printed else [ours]),
                    *(f"{100 * statistics.fmean(cell[key]):.2f}" for key in ("balanced_accuracy", "worst_decile")),
                    f"{100 * statistics.fmean(cell['harmed']):.0f} %",
                ]
            )
        return grid(["method", *beside, "class-balanced", "worst 10 %", "harmed"], rows)

    def _by_shift(self) -> list[str]:
        ours = {name: {MEAN: self.cell(name)["accuracy"], **system["shifts"]} for name, system in self.systems.items()}
        shifts = list(dict.fromkeys(shift for by_shift in ours.values() for shift in by_shift))
        rows = []
        for system, by_shift in ours.items():
            value = self.paper.printed(system, self.piece)
            theirs = value if isinstance(value, dict) else {}
            cells = [_beside(self.paper, theirs.get(shift), _mean(by_shift.get(shift))) for shift in shifts]
            rows.append([self.paper.rows[system], *cells])
        return [_caption(self.paper), "", *grid(["method", *shifts], rows)]


@dataclass(frozen=True)
class _Done:
    """All pieces of a table that were run."""

    paper: Published
    parts: Sequence[_Part]
    pictures: Sequence[str] = ()

    @cached_property
    def verdicts(self) -> list[Verdict]:
        found = {part.piece: {system: part.clients(system) for system in part.systems} for part in self.parts}
        return verdicts(self.paper, found)

    def section(self) -> list[str]:
        paper = self.paper
        of_all = (f"{paper.name}-{RATES}", f"{paper.name}-{SWEPT}")
        missing = [piece for piece in paper.pieces if piece not in {part.piece for part in self.parts}]
        remarks = [
            f"{part.piece}, {line}"
            for part in self.parts
            for line in by_remark({name: system["remarks"] for name, system in part.found["systems"].items()})
        ]
        return [
            f"<!-- {paper.name} -->",
            f"## {heading(paper.title, paper.name)}",
            "",
            f"Source: {paper.source}.",
            "",
            *(self._overview() if len(paper.pieces) > 1 else []),
            *(text for part in self.parts for text in part.section(self.pictures)),
            *([f"Not run yet: {', '.join(missing)}.", ""] if missing else []),
            *_shown([name for name in self.pictures if name.startswith(of_all)]),
            *self._claims(),
            *_listed("Discussion", paper.discussion),
            *_listed("Remarks", remarks),
            *_listed("Deviations", paper.deviations),
            f"<!-- /{paper.name} -->",
            "",
        ]

    def _claims(self) -> list[str]:
        if not self.verdicts:
            return []
        return [CLAIMS, "", *grid(["piece", "expected", "verdict", "difference"], map(_judged, self.verdicts)), ""]

    def _overview(self) -> list[str]:
        paper, caption = self.paper, _caption(self.paper)
        seeds = {part.piece: part.found["seeds"] for part in self.parts}
        shared = _shared_seeds(self.parts)
        if paper.sweeps and shared and any(each != shared for each in seeds.values()):
            seeds = dict.fromkeys(seeds, shared)
            caption = f"{caption.removesuffix(':')}, {named_seeds(shared)} of all pieces:"
        ours = {(part.piece, s): part.accuracy(s, seeds[part.piece]) for part in self.parts for s in part.systems}
        rows = [
            [row, *(_beside(paper, paper.mean(system, piece), ours.get((piece, system))) for piece in paper.pieces)]
            for system, row in paper.rows.items()
        ]
        return [caption, "", *grid(["method", *paper.pieces], rows), ""]

    def results(self) -> dict[str, Any]:
        return {
            "table": self.paper.name,
            "title": self.paper.title,
            "source": self.paper.source,
            "deviations": self.paper.deviations,
            "claims": [verdict._asdict() for verdict in self.verdicts],
            "of": len(self.paper.pieces),
            "pieces": {part.piece: part.found for part in self.parts},
        }


def _quoted(piece: str) -> str:
    return f'"{piece}"' if " " in piece else piece


def _made(run: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    return f"run `{run['name']}`, {_duration(run)}, phases and tests that were there already not counted; {versions}"


def _duration(run: dict[str, Any]) -> str:
    started, finished = (datetime.fromisoformat(run[key]) for key in ("started", "finished"))
    worked = run.get("worked")
    if worked is None:  # earlier code did not count the work of a sitting
        return f"{(finished - started).total_seconds() / 60:.1f} minutes from start to end, pauses included"
    return f"{worked / 60:.1f} minutes of work"


def _listed(title: str, lines: Sequence[str]) -> list[str]:
    return [f"{title}:", "", *(f"- {line}" for line in lines), ""] if lines else []


def _judged(verdict: Verdict) -> list[str]:
    return [verdict.piece, verdict.expected, verdict.verdict, f"{verdict.difference:+.2f} ± {verdict.error:.2f}"]


def _percent(accuracies: Sequence[float]) -> str:
    spread = f" ± {100 * statistics.stdev(accuracies):.2f}" if len(accuracies) > 1 else ""
    return f"{100 * statistics.fmean(accuracies):.2f}{spread}"


def _printed(value: Printed | None) -> str:
    if isinstance(value, tuple):
        return f"{value[0]:.2f} ± {value[1]:.2f}"
    return _number(value.get(MEAN) if isinstance(value, dict) else value)


def _caption(paper: Published) -> str:
    return "Paper / ours:" if paper.values else "Ours:"


def _beside(paper: Published, theirs: float | None, ours: float | None) -> str:
    return f"{_number(theirs)} / {_number(ours)}" if paper.values else _number(ours)


def _mean(accuracies: Sequence[float] | None) -> float | None:
    return 100 * statistics.fmean(accuracies) if accuracies else None


def _number(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.2f}"
