"""A published table beside ours, from the store: a section of docs/reproduction.md and docs/results/NAME.json.

Nobody types a number: both files are written whole from what runs measured and what the paper's data file holds.
"""

from __future__ import annotations

import json
import re
import statistics
from datetime import datetime
from pathlib import Path
from typing import Any

from acclimate.data.folders import write_whole
from acclimate.experiment.published import Published
from acclimate.report.table import Line, Table, table
from acclimate.store.database import Store

HEAD = """# Reproduction

Published tables beside what this code measures. Every section is written by `acclimate reproduce NAME` from the store
of its runs; per-client accuracies, configurations and choices are in [results/](results/). Accuracies are in %, after
the last round; a gap is ours minus the paper's.
"""


def write(paper: Published, store: Store, runs: dict[str, dict[str, Any]], docs: Path) -> list[Path]:
    """Write what there is of a table; `runs` are the finished runs by piece."""
    results, page = docs / "results" / f"{paper.name}.json", docs / "reproduction.md"
    content = json.dumps(_results(paper, store, runs), indent=1)
    write_whole(results, lambda file: file.write(content.encode()))
    old = page.read_text(encoding="utf-8") if page.exists() else HEAD
    section = _section(paper, store, runs)
    marked = re.compile(rf"<!-- {paper.name} -->.*?<!-- /{paper.name} -->\n", re.DOTALL)
    new = marked.sub(lambda _: section, old) if marked.search(old) else f"{old.rstrip()}\n\n{section}"
    write_whole(page, lambda file: file.write(new.encode()))
    return [page, results]


def _section(paper: Published, store: Store, runs: dict[str, dict[str, Any]]) -> str:
    lines = [f"<!-- {paper.name} -->", f"## {paper.title} (`{paper.name}`)", "", f"Paper: {paper.source}.", ""]
    for piece, run in runs.items():
        found = table(store, run)
        seeds = ", ".join(map(str, found.seeds))
        lines += [
            f"### {piece}",
            "",
            f"`acclimate reproduce {paper.name} --only {piece}`, seeds {seeds}; {_made(run)}.",
            "",
        ]
        lines += [
            "| method | paper | ours | gap | class-balanced | worst 10 % | harmed |",
            "|---|---|---|---|---|---|---|",
        ]
        lines += [_row(paper, piece, line, found.streams[0]) for line in found.lines if line.system in paper.rows]
        remarks = [f"{line.system}: {remark}" for line in found.lines for remark in line.remarks]
        lines += ["", *(f"- {remark}" for remark in remarks), ""]
    missing = [piece for piece in paper.pieces if piece not in runs]
    if missing:
        lines += [f"Not run yet: {', '.join(missing)}.", ""]
    lines += ["Deviations:", "", *(f"- {text}" for text in paper.deviations), f"<!-- /{paper.name} -->", ""]
    return "\n".join(lines)


def _row(paper: Published, piece: str, line: Line, stream: str) -> str:
    mean, spread = paper.values[paper.rows[line.system]][piece]
    cell = line.cells[stream]
    ours = 100 * statistics.fmean(cell.accuracy)
    own = f"{ours:.2f}" + (f" ± {100 * statistics.stdev(cell.accuracy):.2f}" if len(cell.accuracy) > 1 else "")
    others = [100 * statistics.fmean(values) for values in (cell.balanced_accuracy, cell.worst_decile, cell.harmed)]
    return (
        f"| {paper.rows[line.system]} | {mean:.2f} ± {spread:.2f} | {own} | {ours - mean:+.2f} "
        f"| {others[0]:.2f} | {others[1]:.2f} | {others[2]:.0f} % |"
    )


def _made(run: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in run["versions"].items())
    started, finished = (datetime.fromisoformat(run[key]) for key in ("started", "finished"))
    minutes = (finished - started).total_seconds() / 60
    return f"run `{run['name']}`, {minutes:.0f} minutes without phases found in the cache; {versions}"


def _results(paper: Published, store: Store, runs: dict[str, dict[str, Any]]) -> dict[str, Any]:
    pieces = {}
    for piece, run in runs.items():
        found = table(store, run)
        pieces[piece] = {
            **{key: run[key] for key in ("name", "started", "finished", "versions", "experiment")},
            "systems": {line.system: _system(store, run, found, line) for line in found.lines},
        }
    return {"table": paper.name, "source": paper.source, "deviations": paper.deviations, "pieces": pieces}


def _system(store: Store, run: dict[str, Any], found: Table, line: Line) -> dict[str, Any]:
    clients: dict[str, dict[str, float]] = {}
    for seed, client, correct, count in store.select(
        "SELECT seed, client, sum(CASE metric WHEN 'correct' THEN value ELSE 0 END), "
        "sum(CASE metric WHEN 'count' THEN value ELSE 0 END) FROM row WHERE run = ? AND system = ? AND phase = 'test' "
        "AND slot >= 0 AND metric IN ('correct', 'count') GROUP BY seed, client",
        run["id"],
        line.system,
    ):
        clients.setdefault(str(seed), {})[str(client)] = correct / count
    cells = {stream: vars(cell) for stream, cell in line.cells.items()}
    return {"streams": cells, "ms_per_batch": line.ms_per_batch, "clients": clients, "remarks": line.remarks}
