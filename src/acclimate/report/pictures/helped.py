"""Who was helped and who was harmed: every client with adaptation against the same client without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from acclimate.report.pictures.look import across, hover
from acclimate.report.pictures.picture import Asked, Picture, Spec, of_stream, some, source
from acclimate.store.records import Entry
from acclimate.store.run import Run

HEADING = "Who was helped and who was harmed"
LEAD = (
    "Each point is one client: to the right, its accuracy without adaptation; upwards, with it. On the line nothing "
    "changed; above it adaptation helped, below it the client would have been better off without."
)
KINDS = ("helped", "harmed", "unchanged")
MOST_NAMES = 3  # of the shifts that a client met
SIDE = 190  # pixels


def has(run: Run) -> bool:
    return any(_adapted(run, stream) for stream in run.streams)


def draw(runs: Sequence[Run], asked: Asked) -> Iterator[Picture]:
    for run in runs:
        for stream in run.streams:
            if adapted := _adapted(run, stream):
                yield _picture(run, stream, adapted)


def _adapted(run: Run, stream: str) -> list[Entry]:
    """Those with clients to compare, if anything has changed for anybody."""
    return [entry for entry in run.entries if run.baseline(entry) != entry and _changes(run, entry, stream)]


def _changes(run: Run, entry: Entry, stream: str) -> bool | None:
    """Whether any client's accuracy is another than without adaptation; None: there is nothing to compare."""
    ours, without = (run.client_accuracies(one, stream) for one in (entry, run.baseline(entry)))
    both = [seed for seed in ours if seed in without]
    return any(ours[seed] != without[seed] for seed in both) if both else None


def _picture(run: Run, stream: str, adapted: Sequence[Entry]) -> Picture:
    shifts = {seed: _met(run, seed, stream) for seed in run.seeds}
    rows, headers = [], []
    for entry in adapted:
        mine = list(_rows(run, entry, stream, shifts))
        headers.append(f"{entry.title}: {sum(row['k'] == KINDS[1] for row in mine)} of {len(mine)} harmed")
        rows += [{**row, "f": headers[-1]} for row in mine]
    several = len(run.seeds) > 1
    about = f"{source(run)}. One point for each client{' and seed' if several else ''}, {some('seed', run.seeds)}."
    title = f"Who was helped and who was harmed{of_stream(run, stream)}"
    same = [one.title for one in run.entries if run.baseline(one) != one and _changes(run, one, stream) is False]
    notes = [f"Everybody's accuracy is as without: {', '.join(same)}."] if same else []
    return Picture(run.name, f"helped-{stream}", title, (about, *notes), _spec(headers, rows))


def _rows(run: Run, entry: Entry, stream: str, shifts: dict[int, dict[int, str]]) -> Iterator[Spec]:
    with_, without = (run.client_accuracies(one, stream) for one in (entry, run.baseline(entry)))
    groups = run.groups()
    for seed, clients in with_.items():
        for client, accuracy in clients.items():
            if client in without.get(seed, {}):
                before = without[seed][client]
                kind = KINDS[0] if accuracy > before else KINDS[1] if accuracy < before else KINDS[2]
                met = ", ".join(filter(None, (groups.get(seed, {}).get(client), shifts[seed].get(client))))
                yield {
                    **{"s": entry.title, "c": client, "seed": seed, "m": met, "k": kind},
                    **{"x": round(100 * before, 2), "y": round(100 * accuracy, 2)},
                }


def _met(run: Run, seed: int, stream: str) -> dict[int, str]:
    """Client → the shifts it met, in few words."""
    found = {client: list(dict.fromkeys(slots.values())) for client, slots in run.shifts(seed, stream).items()}
    return {
        client: ", ".join(names) if len(names) <= MOST_NAMES else f"{len(names)} shifts"
        for client, names in found.items()
    }


def _spec(headers: Sequence[str], rows: Sequence[Spec]) -> Spec:
    lows, highs = [min(row["x"], row["y"]) for row in rows], [max(row["x"], row["y"]) for row in rows]
    edges = [max(0.0, min(lows) - 2), min(100.0, max(highs) + 2)]
    axis = {"type": "quantitative", "scale": {"domain": edges, "nice": False}, "axis": {"tickCount": 5}}
    places = [KINDS[2], KINDS[0], "", " ", KINDS[1]]  # grey, blue and vermilion of the palette
    shapes = {"domain": places, "range": ["circle", "triangle-up", "circle", "circle", "triangle-down"]}
    legend = {"title": None, "orient": "top", "values": list(KINDS)}
    fields = {"c": "client", "m": "met", "s": "system", "x": "without", "y": "with adaptation", "seed": "seed"}
    points: Spec = {
        "mark": {"type": "point", "filled": True, "size": 46, "opacity": 0.75},
        "encoding": {
            "x": {"field": "x", "title": "without adaptation, %", **axis},
            "y": {"field": "y", "title": "with adaptation, %", **axis},
            "color": {"field": "k", "scale": {"domain": places}, "legend": legend},
            "shape": {"field": "k", "scale": shapes, "legend": legend},
            "tooltip": hover(fields),
        },
    }
    diagonal: Spec = {
        "data": {"values": [{"a": edges[0], "b": edges[1]}]},
        "mark": {"type": "rule", "strokeDash": [4, 3]},
        "encoding": {
            "x": {"field": "a", **axis},
            "y": {"field": "a", **axis},
            "x2": {"field": "b"},
            "y2": {"field": "b"},
        },
    }
    return {
        "data": {"values": list(rows)},
        "facet": {"field": "f", "type": "nominal", "sort": list(headers), "title": None},
        "columns": across(len(headers), 4),
        "spec": {"width": SIDE, "height": SIDE, "layer": [diagonal, points]},
    }
