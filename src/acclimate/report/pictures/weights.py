"""To whom one client listened over time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from acclimate.errors import AcclimateError
from acclimate.report.pictures.exchanges import Weights, cells, every, matrices, thousandths
from acclimate.report.pictures.look import hover
from acclimate.report.pictures.picture import Asked, Picture, Spec, of_stream, some, source
from acclimate.store.records import Shifts
from acclimate.store.run import Run

HEADING = "To whom one client listened over time"
LEAD = "One column is one slot: where a row darkens, that client was heard. Above stands what the listener meets."
MOST_SLOTS = 150
MOST_MARKS = 40


def has(run: Run) -> bool:
    return any(matrices(run, run.seeds[0], stream) for stream in run.streams)


def draw(runs: Sequence[Run], asked: Asked) -> Iterator[Picture]:
    for run in runs:
        seed = asked.seed_of(run)
        for stream in run.streams:
            if found := matrices(run, seed, stream):
                yield _picture(run, seed, stream, found, asked.client)


def _picture(
    run: Run, seed: int, stream: str, found: Mapping[str, Mapping[int, Weights]], asked: int | None
) -> Picture:
    shifts = run.shifts(seed, stream)
    who = min(shifts) if asked is None else asked
    heard = {title: over_time(slots, who) for title, slots in found.items()}
    panels = {title: rows for title, rows in heard.items() if any(rows.values())}
    if not panels:
        raise AcclimateError(
            f"{run.name}, stream {stream}: client {who} exchanged nothing; there are {some('client', shifts)}"
        )
    longest = max(len(slots) for slots in found.values())
    notes = [f"{source(run)}, seed {seed}."]
    if longest > MOST_SLOTS:
        notes.append(f"One slot in {-(-longest // MOST_SLOTS)} is drawn.")
    highest = max(weight for rows in panels.values() for row in rows.values() for weight in row.values())
    spec = {
        "vconcat": [
            _panel(title, rows, _changes(shifts, who) if number == 0 else [], highest)
            for number, (title, rows) in enumerate(panels.items())
        ],
        "resolve": {"scale": {"color": "shared"}},
    }
    title = f"Weights of client {who} over time{of_stream(run, stream)}"
    return Picture(run.name, f"weights-{stream}", title, tuple(notes), spec)


def over_time(found: Mapping[int, Weights], client: int) -> dict[int, dict[int, float]]:
    """Slot → whom one client heard with what weight; empty where it was absent."""
    return {
        slot: dict(zip(w.columns, w.values[w.rows.index(client)].tolist(), strict=True)) if client in w.rows else {}
        for slot, w in found.items()
    }


def _changes(shifts: Shifts, client: int) -> list[Spec]:
    """Where what the client meets changes, and to what."""
    met = shifts.get(client, {})
    starts = [slot for slot in met if slot - 1 not in met or met[slot - 1] != met[slot]]
    return [{"x": slot, "shift": met[slot]} for slot in starts] if 1 < len(starts) <= MOST_MARKS else []


def _panel(title: str, heard: Mapping[int, Mapping[int, float]], changes: Sequence[Spec], highest: float) -> Spec:
    slots = every(sorted(heard), MOST_SLOTS)
    senders = sorted({sender for row in heard.values() for sender in row})
    step = max(1, slots[1] - slots[0]) if len(slots) > 1 else 1
    rows = [{"c": sender, "w": thousandths(heard[slot].get(sender, math.nan) for slot in slots)} for sender in senders]
    x = {"type": "quantitative", "title": "slot", "scale": {"nice": False, "domain": [slots[0], slots[-1] + step]},
         "axis": {"grid": False, "tickMinStep": 1}}  # fmt: skip
    tips = hover({"c": "sends", "slot": "slot", "weight": "weight"})
    axis = {"labelOverlap": True, "ticks": False}
    cell: Spec = {
        "data": {"values": rows},
        "transform": [*cells(slots, "slot"), {"calculate": f"datum.slot + {step}", "as": "end"}],
        "mark": {"type": "rect", "strokeWidth": 0},
        "encoding": {
            "x": {"field": "slot", **x},
            "x2": {"field": "end"},
            "y": {"field": "c", "type": "ordinal", "title": "sending client", "axis": axis},
            "color": {"field": "weight", "type": "quantitative", "scale": {"domain": [0, highest]},
                      "legend": {"gradientLength": 120}},
            "tooltip": tips,
        },
    }  # fmt: skip
    turned = {"type": "text", "angle": -40, "align": "left", "baseline": "bottom", "fontSize": 11, "dx": 4, "dy": -3}
    named: Spec = {
        "data": {"values": list(changes)},
        "mark": turned,
        "encoding": {
            "x": {"field": "x", **x},
            "y": {"value": 0},
            "text": {"field": "shift"},
            "opacity": {"value": 0.75},
        },
    }
    ticks: Spec = {
        "data": {"values": list(changes)},
        "mark": {"type": "rule", "strokeWidth": 1},
        "encoding": {"x": {"field": "x", **x}, "y": {"value": 0}, "y2": {"value": -6}},
    }
    above = [ticks, named] if changes else []
    height = max(90, min(14, 220 // max(1, len(senders))) * len(senders))
    heading = {"text": title, "fontSize": 13, "orient": "top", "offset": 8}
    return {"title": heading, "width": 640, "height": height, "layer": [cell, *above]}
