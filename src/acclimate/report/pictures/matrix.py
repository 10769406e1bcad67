"""Who listened to whom: everybody's weights in one slot, with a slider over time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from acclimate.errors import AcclimateError
from acclimate.report.pictures.exchanges import Weights, cells, every, matrices, thousandths
from acclimate.report.pictures.look import across, hover
from acclimate.report.pictures.picture import Asked, Picture, Spec, of_stream, some, source
from acclimate.report.pictures.timetable import met
from acclimate.store.records import Shifts
from acclimate.store.run import Run

HEADING = "Who listened to whom"
LEAD = (
    "A row is a client that receives, a column one that sends; the darker, the more it counts. Clients under the same "
    "shift should find each other: dark squares on the diagonal that change with them. Drag the slider to move in time."
)
MOST_CELLS = 40_000  # of all slots and systems: what a page can hold
MOST_SLOTS = 60
MOST_SHIFTS = 6  # named under the title
SIDE = 240  # pixels


def has(run: Run) -> bool:
    return any(matrices(run, run.seeds[0], stream) for stream in run.streams)


def draw(runs: Sequence[Run], asked: Asked) -> Iterator[Picture]:
    for run in runs:
        seed = asked.seed_of(run)
        for stream in run.streams:
            if found := matrices(run, seed, stream):
                yield _picture(run, seed, stream, found, asked.slot)


def _picture(
    run: Run, seed: int, stream: str, found: Mapping[str, Mapping[int, Weights]], asked: int | None
) -> Picture:
    there = sorted(set().union(*found.values()))
    everywhere = sorted(set(there).intersection(*found.values()))
    chosen = max(everywhere or there) if asked is None else asked
    if chosen not in there:
        raise AcclimateError(
            f"{run.name}, stream {stream}: nothing was exchanged in slot {chosen}; the first exchange "
            f"was in slot {there[0]}, the last in slot {there[-1]} (see test.sync_every; where clients are very many, "
            f"only some slots are kept: {some('slot', there)})"
        )
    most = min(MOST_SLOTS, max(2, MOST_CELLS // sum(next(iter(of.values())).values.size for of in found.values())))
    slots = sorted({*every(there, most), chosen})
    shifts = run.shifts(seed, stream)
    named = [f"{name} ({some('client', ids)})" for name, ids in met(shifts, chosen).items()]
    notes = [f"{source(run)}, seed {seed}, slot {chosen}."]
    notes += [f"Shifts: {'; '.join(named)}."] if len(named) <= MOST_SHIFTS else []
    title = f"Weights of all clients{of_stream(run, stream)}"
    return Picture(run.name, f"matrices-{stream}", title, tuple(notes), _spec(found, shifts, slots, chosen))


def _spec(found: Mapping[str, Mapping[int, Weights]], shifts: Shifts, slots: Sequence[int], chosen: int) -> Spec:
    highest = max(float(found[title][slot].values.max()) for title in found for slot in slots if slot in found[title])
    whom = [
        {"k": f"{client} {slot}", "met": shifts.get(client, {}).get(slot, "")} for client in shifts for slot in slots
    ]
    steps = {after - before for before, after in pairwise(slots)}
    spec: Spec = {
        "concat": [_panel(title, found[title], slots, whom, highest) for title in found],
        "columns": across(len(found), 3),
        "resolve": {"scale": {"color": "shared"}},
    }
    if len(slots) > 1:
        bind: Spec = {"input": "range", "min": slots[0], "max": slots[-1], "step": min(steps), "name": "slot "}
        if len(steps) > 1:  # a slider would stop where nothing was exchanged
            bind = {"input": "select", "options": list(slots), "name": "slot "}
        spec["params"] = [{"name": "slot", "value": chosen, "bind": bind}]
    else:
        spec["params"] = [{"name": "slot", "value": chosen}]
    return spec


def _panel(
    title: str, found: Mapping[int, Weights], slots: Sequence[int], whom: Sequence[Spec], highest: float
) -> Spec:
    senders = sorted({column for slot in slots if slot in found for column in found[slot].columns})
    receivers = sorted({row for slot in slots if slot in found for row in found[slot].rows})
    rows = []
    for slot in slots:
        if slot in found:
            of = found[slot]
            place = {client: number for number, client in enumerate(of.columns)}
            for client, weights in zip(of.rows, of.values.tolist(), strict=True):
                line = [weights[place[sender]] if sender in place else math.nan for sender in senders]
                rows.append({"slot": slot, "r": client, "w": thousandths(line)})
    axis = {"type": "ordinal", "axis": {"labelAngle": 0, "labelOverlap": True, "ticks": False}}
    tips = {"r": "receives", "rm": "and meets", "c": "sends", "cm": "and meets ", "weight": "weight", "slot": "slot"}
    known = {"data": {"values": list(whom)}, "key": "k", "fields": ["met"]}
    return {
        "title": {"text": title, "fontSize": 13},
        "width": SIDE,
        "height": SIDE,
        "data": {"values": rows},
        "transform": [
            {"filter": "datum.slot == slot"},
            *cells(senders, "c"),
            {"calculate": "datum.r + ' ' + datum.slot", "as": "rk"},
            {"calculate": "datum.c + ' ' + datum.slot", "as": "ck"},
            {"lookup": "rk", "from": known, "as": ["rm"]},
            {"lookup": "ck", "from": known, "as": ["cm"]},
        ],
        "mark": {"type": "rect", "strokeWidth": 0},
        "encoding": {
            "x": {"field": "c", "title": "sending client", "scale": {"domain": senders}, **axis},
            "y": {"field": "r", "title": "receiving client", "scale": {"domain": receivers}, **axis},
            "color": {"field": "weight", "type": "quantitative", "scale": {"domain": [0, highest]},
                      "legend": {"gradientLength": 120}},
            "tooltip": hover(tips),
        },
    }  # fmt: skip
