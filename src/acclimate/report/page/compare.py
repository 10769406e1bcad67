"""Several runs side by side: what differs in their configurations, and in their results where they share clients."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from acclimate.report.differing import differing, flat, labels
from acclimate.report.page.html import Html, tag
from acclimate.report.page.summary import row, table
from acclimate.report.significance import NAMED, clients, paired, signed
from acclimate.report.table import Table
from acclimate.store.records import Entry
from acclimate.store.run import Run

MOST_KEYS = 40


def compare(runs: Sequence[Run], made: Sequence[Table]) -> list[Html]:
    """The first section of a report of several runs."""
    names = labels(runs)
    where = [row([name, run.name]) for name, run in zip(names, runs, strict=True)]
    keys = list(differing(runs).items())
    settings = [row([key, *("–" if value is None else value for value in values)]) for key, values in keys[:MOST_KEYS]]
    more = [tag("p", f"{len(keys) - MOST_KEYS} further keys differ.")] if len(keys) > MOST_KEYS else []
    return [
        table("Runs", ["called here", "run"], where),
        tag("h3", "Results side by side"),
        _side_by_side(names, made),
        tag("h3", "Differences on the same clients"),
        *_paired(runs, names),
        tag("h3", "What differs in their configurations"),
        table("Settings that differ", ["setting", *names], settings) if settings else tag("p", "Nothing."),
        *more,
    ]


def _side_by_side(names: Sequence[str], made: Sequence[Table]) -> Html:
    titles = dict.fromkeys(line.title for one in made for line in one.lines)
    streams = dict.fromkeys(stream for one in made for stream in one.streams)
    rows = []
    for title in titles:
        for stream in streams:
            cells = []
            for one in made:
                found = [
                    line.cells[stream].accuracy for line in one.lines if line.title == title and stream in line.cells
                ]
                cells.append(f"{100 * statistics.fmean(found[0]):.1f}" if found and found[0] else "–")
            rows.append(row([title, stream, *cells]))
    return table("Accuracy in %, mean over seeds", ["system", "stream", *names], rows, sortable=True)


def _paired(runs: Sequence[Run], names: Sequence[str]) -> list[Html]:
    """Every run against the first, system by system, where the clients are the same."""
    first, rows = runs[0], []
    for run, name in zip(runs[1:], names[1:], strict=True):
        if not _same_clients(first, run):
            continue
        for entry in run.entries:
            for stream in run.streams:
                found = paired(clients(run, entry, stream), clients(first, Entry(*entry), stream))
                if found is not None:
                    verdict = "surely different" if found.sure else "within noise"
                    interval = f"{signed(found.mean, 2)} [{signed(found.low, 2)}, {signed(found.high, 2)}]"
                    rows.append(row([entry.title, stream, f"{name} − {names[0]}", interval, str(found.pairs), verdict]))
    if not rows:
        return [tag("p", "No run shares its clients with the first one (another scenario, or other seeds).")]
    head = ["system", "stream", "difference of", "points, 95 % interval", "pairs", "verdict"]
    return [table("Paired differences", head, rows, sortable=True), tag("p", f"By: {NAMED}.", class_="note")]


def _same_clients(a: Run, b: Run) -> bool:
    """The same scenarios make the same clients for the same seed."""
    ours, theirs = (
        {"trained": run.experiment["scenario"], "tested": run.experiment["test"].get("scenario")} for run in (a, b)
    )
    return flat(ours) == flat(theirs) and bool(set(a.seeds) & set(b.seeds))
