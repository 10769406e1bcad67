"""A run for papers and pipelines: CSV, and LaTeX with booktabs."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from acclimate.report.significance import NAMED
from acclimate.report.standings import Place, standings
from acclimate.report.table import named_seeds, table
from acclimate.store.run import Run

_SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def as_csv(runs: Sequence[Run]) -> str:
    """One line for every run, system, stream and seed, as `Run.table` has them."""
    rows = [{"run": run.name, **record} for run in runs for record in run.table()]
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else ["run"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def as_latex(run: Run) -> str:
    """A table for a paper: the best bold, what is within noise of it underlined; needs the package booktabs."""
    made = table(run)
    places = {stream: {p.line.title: p for p in standings(run, made, stream)} for stream in made.streams}
    spread = r" $\pm$ s.d." if len(made.seeds) > 1 else ""
    seeds = f"mean{spread} over {named_seeds(made.seeds)}"
    head = " & ".join(["System", *(f"{escaped(s)} & worst 10\\,\\% & harmed" for s in made.streams)])
    rows = [
        " & ".join([escaped(line.title), *(_cells(places[s].get(line.title)) for s in made.streams)]) + r" \\"
        for line in made.lines
    ]
    return "\n".join(
        [
            f"% {run.name}: accuracy in %, {seeds}. Bold: best; underlined: within noise of the best",
            f"% ({NAMED}). Needs \\usepackage{{booktabs}}.",
            rf"\begin{{tabular}}{{l{'rrr' * len(made.streams)}}}",
            r"\toprule",
            head + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def escaped(text: str) -> str:
    r"""Plain text for LaTeX.

    >>> print(escaped("a_b 50 % ~"))
    a\_b 50 \% \textasciitilde{}
    """
    return re.sub(r"[\\~^&%$#_{}]", lambda found: _SPECIAL.get(found[0], f"\\{found[0]}"), text)


def _cells(place: Place | None) -> str:
    if place is None:
        return "-- & -- & --"
    shown = f"{place.mean:.1f}"
    marked = rf"\textbf{{{shown}}}" if place.best else rf"\underline{{{shown}}}" if place.within_noise else shown
    spread = "" if place.spread is None else rf" $\pm$ {place.spread:.1f}"
    harmed = "--" if place.harmed is None else rf"{place.harmed:.0f}\,\%"
    return f"{marked}{spread} & {place.worst:.1f} & {harmed}"
