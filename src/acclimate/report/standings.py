"""Who is best on a stream, who is not surely worse, and whom it harmed: what a table marks and a sentence says."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass

from acclimate.report.significance import Difference, clients, paired
from acclimate.report.table import Cell, Line, Table
from acclimate.store.records import Entry
from acclimate.store.run import Run


@dataclass(frozen=True)
class Place:
    """One system on one stream, beside the best one and beside no adaptation."""

    line: Line
    cell: Cell
    best: bool
    from_best: Difference | None  # None for the best itself, and where there are no pairs
    from_none: Difference | None  # None for no adaptation itself

    @property
    def mean(self) -> float:
        """The accuracy in %, over seeds."""
        return 100 * statistics.fmean(self.cell.accuracy)

    @property
    def spread(self) -> float | None:
        """Its standard deviation over seeds."""
        return 100 * statistics.stdev(self.cell.accuracy) if len(self.cell.accuracy) > 1 else None

    @property
    def within_noise(self) -> bool:
        """Whether it may be as good as the best."""
        return not self.best and self.from_best is not None and not self.from_best.sure

    @property
    def worst(self) -> float:
        return 100 * statistics.fmean(self.cell.worst_decile)

    @property
    def harmed(self) -> float | None:
        """The share of clients that would have been better off without, in %; None where nobody can be compared."""
        known = [value for value in self.cell.harmed if not math.isnan(value)]
        return 100 * statistics.fmean(known) if known else None


def standings(run: Run, table: Table, stream: str) -> list[Place]:
    """Everybody who was tested on a stream, in the table's order."""
    scored = [line for line in table.lines if line.cells[stream].accuracy]
    if not scored:
        return []
    best = max(scored, key=lambda line: statistics.fmean(line.cells[stream].accuracy))
    of = {line.title: clients(run, Entry(line.system, line.selected), stream) for line in scored}
    places = []
    for line in scored:
        entry = Entry(line.system, line.selected)
        none = run.baseline(entry)
        without = clients(run, none, stream) if none != entry else {}
        places.append(
            Place(
                line,
                line.cells[stream],
                line is best,
                None if line is best else paired(of[line.title], of[best.title]),
                paired(of[line.title], without) if without else None,
            )
        )
    return places


def sentence(places: list[Place]) -> str:
    """What a reader wants to know first."""
    best = next(place for place in places if place.best)
    words = f"{best.line.title} is best with {best.mean:.1f} %"
    if best.from_none is not None:
        gain, sure = best.from_none, "" if best.from_none.sure else ", which is within noise"
        words += f", {abs(gain.mean):.1f} points {'above' if gain.mean >= 0 else 'below'} no adaptation{sure}"
    words += "."
    near = [place.line.title for place in places if place.within_noise]
    others = [place for place in places if not place.best]
    if near:
        words += f" Not surely worse: {', '.join(near)}."
    elif others and all(place.from_best is not None for place in others):  # else there was nothing to compare by
        words += " All others are surely worse."
    harm = max((place for place in places if place.harmed), key=lambda place: place.harmed or 0.0, default=None)
    if harm is None:
        return f"{words} Nobody was harmed."
    return f"{words} Most harm: {harm.line.title}, which left {harm.harmed:.0f} % of clients worse off than without."
