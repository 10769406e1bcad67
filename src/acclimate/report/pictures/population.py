"""Who had which classes, and who met what when: the scenario in one look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from acclimate.report.pictures.look import hover
from acclimate.report.pictures.picture import Asked, Picture, Spec, of_stream, source
from acclimate.store.records import Met, People
from acclimate.store.run import Run

HEADING = "Who had what, and who met what when"
LEAD = (
    "On the left the classes of every client's images (the darker, the more of them), on the right what it meets, in "
    "order. Uneven rows on the left are label shift; colours on the right are shifts of the images."
)
MOST_CLIENTS = 60  # drawn; more could not be told apart
MOST_NAMED = 20  # shifts in a legend
# Twelve that differ in lightness as well as in hue, after Okabe, Ito and Tol; names stand in the legend and on hover.
HUES = ["#88ccee", "#e69f00", "#117733", "#cc6677", "#332288", "#ddcc77", "#44aa99", "#882255", "#999933", "#aa4499",
        "#6699cc", "#888888"]  # fmt: skip


def has(run: Run) -> bool:
    return bool(run.people())


def draw(runs: Sequence[Run], asked: Asked) -> Iterator[Picture]:
    for run in runs:
        known = run.people()
        seed = asked.seed_of(run)
        people = known.get(seed, next(iter(known.values())))
        for stream in run.streams:
            if met := [one for one in people.streams if one.stream == stream]:
                yield _tested(run, seed, stream, people, met)
        if people.source:
            yield _source(run, seed, people)


def _tested(run: Run, seed: int, stream: str, people: People, met: Sequence[Met]) -> Picture:
    shown = met[:MOST_CLIENTS]
    notes = [f"{source(run)}, seed {seed}.", *_cut(len(met)), *people.remarks]
    unknown = sum(one.labels is None for one in met)
    notes += [f"{unknown} of {len(met)} clients have no labels and no score."] if unknown else []
    labels = [row for one in shown for row in _shares(one.client, one.labels or [], one.images)]
    panels = [_classes(labels, people.classes, len(shown), "test client")] if labels else []
    panels.append(_shifts(shown))
    spec = {"hconcat": panels, "resolve": {"scale": {"color": "independent"}}}
    title = f"Test clients: their classes, and what they meet{of_stream(run, stream)}"
    return Picture(run.name, f"population-{stream}", title, tuple(notes), spec)


def _source(run: Run, seed: int, people: People) -> Picture:
    shown = people.source[:MOST_CLIENTS]
    rows = [row for one in shown for row in _shares(one.client, one.labels, one.train + one.validation)]
    sizes = [one.train + one.validation for one in people.source]
    each = f"{sizes[0]}" if len(set(sizes)) == 1 else f"{min(sizes)} to {max(sizes)}"
    notes = (f"{source(run)}, seed {seed}. {len(sizes)} clients with {each} images.", *_cut(len(sizes)))
    spec = {**_classes(rows, people.classes, len(shown), "source client"), "usermeta": {"most": 400}}
    return Picture(run.name, "population-source", "Source clients: their classes", notes, spec)


def _cut(number: int) -> list[str]:
    return [f"The first {MOST_CLIENTS} of {number} clients."] if number > MOST_CLIENTS else []


def _shares(client: int, labels: Sequence[int], images: int) -> list[Spec]:
    """One row for each class that a client has."""
    return [
        {"c": client, "k": label, "n": number, "p": round(100 * number / max(images, 1), 1), "of": images}
        for label, number in enumerate(labels)
        if number
    ]


def _darkest(rows: Sequence[Spec], classes: int) -> float:
    """The share that is drawn darkest: never less than three times an even one, so that even clients look even."""
    return float(max(300 / classes, *(row["p"] for row in rows), 0.0))


def _height(clients: int) -> int:
    return max(80, min(18, 600 // clients) * clients)


def _classes(rows: Sequence[Spec], classes: int, clients: int, who: str) -> Spec:
    fields = {"c": who, "k": "class", "n": "images", "of": "of", "p": "%"}
    return {
        "data": {"values": list(rows)},
        "width": 260 if classes <= 30 else 400,
        "height": _height(clients),
        "mark": "rect",
        "encoding": {
            "x": {"field": "k", "type": "ordinal", "title": "class", "axis": {"labelAngle": 0, "labelOverlap": True},
                  "scale": {"domain": list(range(classes))}},
            "y": {"field": "c", "type": "ordinal", "title": who, "axis": {"labelOverlap": True}},
            "color": {"field": "p", "type": "quantitative", "title": "% of images",
                      "scale": {"domain": [0, _darkest(rows, classes)]}, "legend": {"gradientLength": 80}},
            "tooltip": hover(fields),
        },
    }  # fmt: skip


def _shifts(met: Sequence[Met]) -> Spec:
    rows, names = [], list(dict.fromkeys(shift for one in met for shift, _ in one.segments))
    for one in met:
        start = 0
        for shift, number in one.segments:
            rows.append({"c": one.client, "a": start, "b": start + number, "shift": shift, "n": number})
            start += number
    legend = {"title": "shift", "symbolType": "square"} if len(names) <= MOST_NAMED else None
    scale = {"domain": names, "range": [HUES[number % len(HUES)] for number in range(len(names))]}
    fields = {"c": "client", "shift": "shift", "n": "images", "a": "from image"}
    return {
        "data": {"values": rows},
        "width": 320,
        "height": _height(len(met)),
        "mark": {"type": "bar", "stroke": "white", "strokeWidth": 0.5},
        "encoding": {
            "x": {"field": "a", "type": "quantitative", "title": "images, in order", "axis": {"grid": False}},
            "x2": {"field": "b"},
            "y": {"field": "c", "type": "ordinal", "title": None, "axis": {"labelOverlap": True}},
            "color": {"field": "shift", "scale": scale, "legend": legend},
            "tooltip": hover(fields),
        },
    }
