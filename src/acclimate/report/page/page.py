"""The page: sections, pictures, looks and scripts, in one file without any address in it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from acclimate.report.differing import labels
from acclimate.report.page.again import again
from acclimate.report.page.against import against
from acclimate.report.page.compare import compare
from acclimate.report.page.html import Html, data, joined, script, tag
from acclimate.report.page.scripts import vega
from acclimate.report.page.summary import summary
from acclimate.report.pictures import draw
from acclimate.report.pictures.look import config
from acclimate.report.pictures.picture import Asked, Kind, Picture, Spec
from acclimate.report.table import table
from acclimate.store.run import Run
from acclimate.version import __version__

# Nothing may be loaded from anywhere; Vega makes functions from its expressions.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'; img-src data: blob:"
Section = tuple[str, str, list[Html]]  # id, heading, content


def page(runs: Sequence[Run], asked: Asked = Asked()) -> str:  # noqa: B008
    """A whole report of one run, or of several side by side."""
    made = [table(run) for run in runs]
    drawn = list(draw(runs, asked))
    specs: list[Spec] = []
    sections: list[Section] = []
    several = len(runs) > 1
    if several:
        sections.append(("compare", "Side by side", compare(runs, made)))
    for number, (run, one, label) in enumerate(zip(runs, made, labels(runs) if several else [""], strict=True)):
        mark, prefix = f"-{number}" if several else "", f"{label}: " if several else ""
        sections.append((f"summary{mark}", f"{prefix}Summary", summary(run, one)))
        for kind, pictures in drawn:
            mine = [picture for picture in pictures if picture.run == run.name]
            if mine:
                sections.append((f"{name_of(kind)}{mark}", f"{prefix}{kind.HEADING}", _pictures(kind, mine, specs)))
        if beside := against(run):
            sections.append((f"paper{mark}", f"{prefix}Against the paper", beside))
        sections.append((f"again{mark}", f"{prefix}How to make it again", again(run)))
    return _whole(runs, sections, specs)


def name_of(kind: Kind) -> str:
    """The last part of a module's name."""
    return kind.__name__.rpartition(".")[2]  # type: ignore[attr-defined,no-any-return]


def _pictures(kind: Kind, pictures: Sequence[Picture], specs: list[Spec]) -> list[Html]:
    """Places for pictures; the specifications are added to `specs`."""
    found = [tag("p", kind.LEAD, class_="lead")]
    for picture in pictures:
        place = tag("div", class_="vega", data_picture=len(specs), data_name=picture.name, role="img",
                    aria_label=f"{picture.title}. {' '.join(picture.notes)}")  # fmt: skip
        about = tag("figcaption", [tag("span", note, " ") for note in picture.notes])
        title = tag("h3", picture.title) if picture.title != kind.HEADING else None
        found.append(tag("figure", title, place, about))
        specs.append(picture.spec)
    return found


def _whole(runs: Sequence[Run], sections: Sequence[Section], specs: Sequence[Spec]) -> str:
    folder = files("acclimate.report.page")
    css, js = ((folder / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    title = ", ".join(run.name for run in runs)
    links = tag("ul", [tag("li", tag("a", heading, href=f"#{id}")) for id, heading, _ in sections])
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", f"Acclimate: {title}"),
        Html(f"<style>{css}</style>"),
    )
    body = tag(
        "body",
        tag("a", "To the content", href="#content", class_="skip"),
        tag(
            "header",
            tag("p", "Acclimate report", class_="brand"),
            tag("h1", title),
            tag("nav", links, aria_label="Sections"),
        ),
        tag(
            "main",
            [tag("section", tag("h2", heading), content, id=id) for id, heading, content in sections],
            id="content",
        ),
        tag("footer", tag("p", f"Written by acclimate {__version__}. This file needs no network.")),
        tag("noscript", tag("p", "The tables are complete; pictures need JavaScript.", class_="warning")),
        data("pictures", {"specs": list(specs), "day": config(), "night": config(night=True)}),
        script(vega()),
        script(js),
    )
    return joined(Html("<!doctype html>\n"), tag("html", head, body, lang="en")) + "\n"
