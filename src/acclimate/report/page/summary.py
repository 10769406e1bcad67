"""The first screen: what was run in a sentence, who is best and whether that is sure, and the tables behind it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from acclimate.report.page.html import Html, joined, tag
from acclimate.report.pictures.picture import some
from acclimate.report.significance import CAVEAT, NAMED, Difference, signed
from acclimate.report.standings import Place, sentence, standings
from acclimate.report.table import PhaseTraffic, Table, by_remark
from acclimate.report.text import NOT_TESTED, share, size, traffic
from acclimate.store.run import Run

MOST_PHASES = 3  # trainings that the first sentence names


def summary(run: Run, made: Table) -> list[Html]:
    """Everything about the systems of a run that is no picture."""
    parts = [tag("p", scene(run), class_="lead"), *_warnings(run, made)]
    if not made.lines:
        return [*parts, tag("p", NOT_TESTED), *_trainings(run, made)]
    for stream in made.streams:
        places = standings(run, made, stream)
        title = f"Stream {stream}" if len(made.streams) > 1 else "Which system is best?"
        parts.append(tag("h3", title))
        if places:
            parts += [tag("p", sentence(places), class_="verdict"), _table(made, places, stream)]
            parts += [_groups(places)] if any(place.cell.groups for place in places) else []
        else:
            blind = "Nobody here has labels, so nothing can be scored."
            parts.append(tag("p", blind if stream in made.unscored else NOT_TESTED))
    parts.append(tag("p", f"Best and “≈ best” (within noise) by: {NAMED}. {CAVEAT}", class_="note"))
    return [*parts, *_costs(run, made), *_remarks(made)]


def scene(run: Run) -> str:
    """The scenario in a sentence."""
    plain, people = run.experiment, next(iter(run.people().values()), None)
    firsts = [system["phases"][0] for system in plain["systems"] if system["phases"]]
    training = list(dict.fromkeys(f"{phase['name']} ({phase['rounds']} rounds)" for phase in firsts))
    who = f"{len(people.source)} source clients" if people else "Source clients"
    data = plain["scenario"].get("data") or plain["scenario"]["name"]
    words = f"{who} train {plain['model']['name']} on {data}"
    shown = [*training[:MOST_PHASES], *(["others"] if len(training) > MOST_PHASES else [])]
    words += f" with {' or '.join(shown)}" if shown else ""
    tested = len({met.client for met in people.streams}) if people else None
    words += f"; {tested} test clients" if tested else "; test clients"
    size_ = plain["test"]["batch_size"]
    batches = "in one batch each" if size_ == "all" else f"in batches of {size_}"
    met = f"{len(run.streams)} streams ({', '.join(run.streams)})" if len(run.streams) > 1 else "a stream of images"
    return (
        f"{words} without labels meet {met} {batches}: scenario {plain['scenario']['name']}, {some('seed', run.seeds)}."
    )


def _warnings(run: Run, made: Table) -> list[Html]:
    lines = [] if made.finished else ["This run is not finished: the report shows what there is so far."]
    if made.told:
        lines.append("reset: shift — adapters were told the boundaries of shifts, which they cannot know in real use.")
    for seed, people in run.people().items():
        blind = {met.client for met in people.streams if met.labels is None}
        if blind:
            everybody = {met.client for met in people.streams}
            lines.append(f"Seed {seed}: {len(blind)} of {len(everybody)} test clients have no labels and no score.")
    return [tag("p", line, class_="warning") for line in lines]


def _table(made: Table, places: Sequence[Place], stream: str) -> Html:
    seeds = " ± s.d. over seeds" if len(made.seeds) > 1 else ""
    head = ["system", f"accuracy, %{seeds}", "against the best", "against none", "worst 10 %", "harmed"]
    rows = []
    for place in places:
        mark = ("★ best", "best") if place.best else ("≈ best", "near") if place.within_noise else ("", "")
        spread = "" if place.spread is None else f" ± {place.spread:.1f}"
        rows.append(
            tag(
                "tr",
                tag("th", place.line.title, " ", tag("span", mark[0], class_="mark") if mark[0] else None, scope="row"),
                _cell(f"{place.mean:.1f}{spread}", place.mean),
                _difference(place.from_best),
                _difference(place.from_none),
                _cell(f"{place.worst:.1f}", place.worst),
                _cell("–" if place.harmed is None else f"{place.harmed:.0f} %", place.harmed),
                class_=mark[1] or None,
            )
        )
    caption = f"Systems on stream {stream}" if len(made.streams) > 1 else "Systems"
    return table(caption, head, rows, sortable=True)


def table(caption: str, head: Sequence[str], rows: Sequence[Html], sortable: bool = False) -> Html:
    """A table that scrolls by itself where it is wider than the page; a click on a head sorts."""
    heads = [tag("th", tag("button", text, type="button") if sortable else text, scope="col") for text in head]
    body = tag(
        "table",
        tag("caption", caption),
        tag("thead", tag("tr", heads)),
        tag("tbody", rows),
        class_="sortable" if sortable else None,
    )
    return tag("div", body, class_="scroll", tabindex=0, role="region", aria_label=caption)


def row(cells: Sequence[str]) -> Html:
    """A row of texts; the first is its head."""
    return tag("tr", tag("th", cells[0], scope="row"), [tag("td", cell) for cell in cells[1:]])


def _cell(text: str, value: float | None) -> Html:
    known = value is not None and not math.isnan(value)
    return tag("td", text, data_value=f"{value:.6g}" if known else None)


def _difference(found: Difference | None) -> Html:
    if found is None:
        return _cell("–", None)
    interval = tag("span", f"[{signed(found.low)}, {signed(found.high)}]", class_="interval")
    kind = "up" if found.low > 0 else "down" if found.high < 0 else None
    return tag("td", f"{signed(found.mean)} ", interval, data_value=f"{found.mean:.6g}", class_=kind)


def _groups(places: Sequence[Place]) -> Html:
    names = list(dict.fromkeys(name for place in places for name in place.cell.groups))
    rows = [
        tag(
            "tr",
            tag("th", place.line.title, scope="row"),
            [
                _cell(f"{100 * statistics.fmean(values):.1f}", 100 * statistics.fmean(values))
                if (values := place.cell.groups.get(name))
                else _cell("–", None)
                for name in names
            ],
        )
        for place in places
    ]
    return table("Accuracy by group of clients, %", ["system", *names], rows, sortable=True)


def _costs(run: Run, made: Table) -> list[Html]:
    rows = [
        tag(
            "tr",
            tag("th", line.title, scope="row"),
            _cell(f"{line.ms_per_batch:.1f}", line.ms_per_batch),
            _cell(size(line.bytes_per_slot), line.bytes_per_slot),
            _cell(size(line.knowledge_bytes), line.knowledge_bytes),
            _cell(str(line.left_out), line.left_out),
            _cell(share(line.stepped_in), line.stepped_in) if made.guarded else [],
        )
        for line in made.lines
    ]
    head = ["system", "ms per batch", "bytes per slot", "sent once", "uploads left out"]
    head += ["guard stepped in"] if made.guarded else []
    note = (
        "ms per batch: adapting and predicting, one thread. Bytes per slot: up and down, per client, where clients "
        "exchange something. Sent once: the model and what the adapter needs besides it."
    )
    costs = [tag("h3", "What does it cost?"), table("Costs at test time", head, rows, sortable=True)]
    return [*costs, tag("p", note, class_="note"), *_trainings(run, made)]


def _trainings(run: Run, made: Table) -> list[Html]:
    phases = [tag("li", traffic(phase), _seconds(run, phase)) for phase in made.phases]
    return [tag("h4", "Training"), tag("ul", phases)] if phases else []


def _seconds(run: Run, phase: PhaseTraffic) -> str:
    """How long training took, where it was not in the cache."""
    names = {one.label for one in run.phases() if one.name == phase.name and one.rounds == phase.rounds}
    found = [seconds for (label, _), seconds in run.training_seconds().items() if label in names]
    return f"; trained in {statistics.fmean(found):.0f} s per seed" if found else "; from the cache"


def _remarks(made: Table) -> list[Html]:
    lines = by_remark({line.title: line.remarks for line in made.lines})
    return [tag("h4", "Remarks"), tag("ul", [tag("li", line) for line in lines])] if lines else []


def facts(pairs: Sequence[tuple[str, str]]) -> Html:
    """Names and values, as a list of definitions."""
    return tag("dl", [joined(tag("dt", name), tag("dd", value)) for name, value in pairs])
