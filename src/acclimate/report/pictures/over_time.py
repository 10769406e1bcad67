"""Accuracy over time, with the shifts that clients meet."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from acclimate.report.pictures.lines import (
    HEIGHT,
    UNPACK,
    WIDTH,
    Line,
    Values,
    end_data,
    hidden,
    line_data,
    line_layers,
    over_seeds,
    packed,
    room,
    window_of,
)
from acclimate.report.pictures.picture import Asked, Picture, Spec, of_stream, some, source
from acclimate.report.pictures.timetable import EVERYBODY, groups, timetable
from acclimate.store.records import Moment, Shifts
from acclimate.store.run import Run

HEADING = "Over time"
LEAD = (
    "Accuracy in every slot, as a mean over clients. A method that adapts should recover after a change of shift and "
    "stay up; one that forgets drifts away. Bands around lines are the range over seeds; click a name to bring out its "
    "line."
)
MOST_MARKS = 60  # of changing shifts; more would hide what they explain
GROUP = {"filter": "datum.g == group"}


def has(run: Run) -> bool:
    return any(_long(run, stream) for stream in run.streams)


def draw(runs: Sequence[Run], asked: Asked) -> Iterator[Picture]:
    for run in runs:
        for stream in run.streams:
            if _long(run, stream):
                yield _picture(run, stream)


def _long(run: Run, stream: str) -> bool:
    """Whether anybody has more than one slot there."""
    return any(moment.slot > 0 for moment in run.moments(stream))


def _picture(run: Run, stream: str) -> Picture:
    moments = list(run.moments(stream))
    seeds = sorted({moment.seed for moment in moments})
    shifts = [run.shifts(seed, stream) for seed in seeds]
    kinds = groups(run, seeds, shifts)
    everybody = {seed: set(met) for seed, met in zip(seeds, shifts, strict=True)}
    rows: list[Spec] = []
    ends: list[Spec] = []
    bands: list[Spec] = []
    rules: list[Spec] = []
    notes: list[str] = []
    for name, members in {EVERYBODY: everybody, **kinds}.items():
        named = curves(run, [moment for moment in moments if moment.client in members[moment.seed]])
        window = window_of(max(len(line.mean) for line in named.values()))
        found = line_data(named, window)
        rows += [{**row, "g": name} for row in found]
        ends += [{**row, "g": name} for row in end_data(found)]
        theirs = [{c: met[c] for c in members[seed]} for seed, met in zip(seeds, shifts, strict=True)]
        shown, said = _shown(theirs, max(len(line.mean) for line in named.values()))
        (bands if "x2" in (shown or [{}])[0] else rules).extend({**row, "g": name} for row in shown)
        if name == EVERYBODY:
            smoothed = [f"Smoothed: a centred mean over {window} slots."] if window > 1 else []
            beyond = range(reached(moments) + 1, max(moment.slot for moment in moments) + 1)
            short = [f"Fewer than half of the clients reach {some('slot', beyond)}: not shown."] if beyond else []
            notes = [*said, *smoothed, *short, *hidden(named)]
    several = "; bands: range over seeds" if len(seeds) > 1 else ""
    about = f"{source(run)}. Mean over clients and {some('seed', seeds)}{several}."
    titles = [entry.title for entry in run.entries]
    return Picture(
        run.name,
        f"accuracy-{stream}",
        f"Accuracy over time{of_stream(run, stream)}",
        (about, *notes),
        _spec(titles, rows, ends, bands, rules, list(kinds), band=len(seeds) > 1),
    )


def curves(run: Run, moments: Sequence[Moment]) -> dict[str, Line]:
    """What was tested → the mean over clients in each slot that half of them reach, in %, by seed."""
    sums: dict[tuple[str, int], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for moment in moments:
        sums[moment.entry.title, moment.seed][moment.slot].append(100 * moment.accuracy)
    last = reached(moments)
    found: dict[str, list[Values]] = {}
    for entry in run.entries:
        for (title, _), slots in sorted(sums.items()):
            if title == entry.title:
                each = [np.mean(slots[slot]) if slot in slots else math.nan for slot in range(last + 1)]
                found.setdefault(title, []).append(np.array(each, dtype=np.float64))
    return {title: over_seeds(seeds) for title, seeds in found.items()}


def reached(moments: Sequence[Moment]) -> int:
    """The last slot that at least half of the clients come to: beyond it a line would be about a few images."""
    last: dict[tuple[int, int], int] = defaultdict(int)
    for moment in moments:
        last[moment.seed, moment.client] = max(last[moment.seed, moment.client], moment.slot)
    return sorted(last.values())[len(last) // 2]


def _shown(shifts: Sequence[Shifts], slots: int) -> tuple[list[Spec], list[str]]:
    """Bands where all meet the same, else marks where anybody's shift changes; and a sentence about it."""
    first = timetable(shifts[0])
    if any(timetable(other).changes != first.changes for other in shifts):
        return [], ["Shifts change in other slots with other seeds and are not marked."]
    if len(first.changes) > MOST_MARKS:
        return [], [f"Shifts change in {len(first.changes) - 1} slots, too many to mark."]
    starts = [start for start in first.changes if start < slots]
    if first.shared:
        spans = zip(starts, [*starts[1:], slots], strict=True)
        bands = [
            {"x": _edge(start, slots), "x2": _edge(end, slots), "shift": first.changes[start]} for start, end in spans
        ]
        several = len(bands) > 1  # one shift all the time needs no band
        return (bands, ["Coloured bands: the shift that all clients meet."]) if several else ([], [])
    if len(starts) == 1:
        return [], []
    marks = [{"x": _edge(start, slots), "shift": first.changes[start]} for start in starts]
    return marks, [f"Vertical lines: where any shift changes; names: client {first.named}'s."]


def _edge(slot: int, slots: int) -> float:
    """Half-way between two slots, but never beyond the first and the last."""
    return min(max(slot - 0.5, 0.0), slots - 1.0)


def _spec(
    titles: Sequence[str],
    rows: Sequence[Spec],
    ends: Sequence[Spec],
    bands: Sequence[Spec],
    rules: Sequence[Spec],
    kinds: Sequence[str],
    *,
    band: bool,
) -> Spec:
    x = {"field": "x", "type": "quantitative", "title": "slot", "axis": {"grid": False, "tickMinStep": 1},
         "scale": {"nice": False, "zero": False}}  # fmt: skip
    y = {"type": "quantitative", "title": "accuracy in %", "scale": {"zero": False}}
    filters = [GROUP] if kinds else []
    spec: Spec = {
        "width": WIDTH,
        "height": HEIGHT,
        "usermeta": {"beside": room(titles)},
        "data": {"values": packed(rows)},
        "transform": [*filters, UNPACK],
        "layer": [
            *(_bands(bands, x, filters) if bands else []),
            *(_marks(rules, x, filters) if rules else []),
            *line_layers(titles, x, y, band=band, ends=ends, filters=filters),
        ],
        "resolve": {"scale": {"color": "shared"}},
    }
    if kinds:
        menu = {"input": "select", "options": [EVERYBODY, *kinds], "name": "clients "}
        spec["params"] = [{"name": "group", "value": EVERYBODY, "bind": menu}]
    return spec


def _bands(bands: Sequence[Spec], x: Spec, filters: Sequence[Spec]) -> list[Spec]:
    """Coloured by alternating strength, since the name stands above and colours are for systems."""
    order = {name: number for number, name in enumerate(dict.fromkeys(band["shift"] for band in bands))}
    values = [{**band, "n": order[band["shift"]]} for band in bands]
    hues = ["#7aa6c2", "#d9b26f", "#8fbf9f", "#c79bb5", "#b0a58f", "#8f9fd1"]
    domain = list(range(max(order.values()) + 1))
    hue: Mapping[str, object] = {"domain": domain, "range": [hues[number % len(hues)] for number in domain]}
    tip = {"field": "shift", "title": "shift"}
    return [
        {
            "data": {"values": values},
            "transform": list(filters),
            "mark": {"type": "rect", "opacity": 0.2},
            "encoding": {
                **{"x": x, "x2": {"field": "x2"}, "tooltip": tip},
                "fill": {"field": "n", "type": "ordinal", "scale": hue, "legend": None},
            },
        },
        _above(values, x, filters),
    ]


def _marks(rules: Sequence[Spec], x: Spec, filters: Sequence[Spec]) -> list[Spec]:
    line = {"data": {"values": list(rules)}, "transform": list(filters), "encoding": {"x": x}}
    return [{**line, "mark": {"type": "rule", "opacity": 0.35}}, _above(rules, x, filters)]


def _above(values: Sequence[Mapping[str, object]], x: Spec, filters: Sequence[Spec]) -> Spec:
    """Names of shifts over the place where they begin."""
    turned = {"type": "text", "angle": -40, "align": "left", "baseline": "bottom", "fontSize": 11, "dx": 4, "dy": -3}
    return {
        "data": {"values": list(values)},
        "transform": list(filters),
        "mark": turned,
        "encoding": {"x": x, "y": {"value": 0}, "text": {"field": "shift"}, "opacity": {"value": 0.75}},
    }
