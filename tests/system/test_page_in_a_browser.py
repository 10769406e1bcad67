"""The report as a person uses it: in a real browser, from disk, without a network."""

import pytest
import torch

import battery
from acclimate import trees
from acclimate.engine.evaluate import Commit, Figure, Score
from acclimate.experiment.reader import parse
from acclimate.experiment.run import STORE, run
from acclimate.report.page.page import page
from acclimate.store.database import Store, Unit
from toy_run import toy

pytestmark = pytest.mark.system

EVIL = "<script>alert(1)</script>"
MARKS = ".mark-symbol path, .mark-rect path, .mark-line path, .mark-rule line, .mark-area path"


def written(folder, runs):
    path = folder / "report.html"
    path.write_text(page(runs), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Of a tiny run with a system of a dangerous name, an aggregator, ATP, and the round best on validation data."""
    folder = tmp_path_factory.mktemp("report")
    systems = [
        "tent",
        "fedamp+tent",
        {"name": EVIL, "adapter": "bn-adapt"},
        {"name": "atp", "phases": [{"name": "atp", "rounds": 2}], "adapter": "atp"},
        {"name": "chosen", "adapter": "em", "select": "best-validation"},
    ]
    phases = [{"name": "fedavg", "rounds": 3, "keep_every": 1}]
    experiment = parse(battery.tiny(systems=systems, phases=phases, test={"batch_size": 4}, seeds=[0, 1]))
    run(experiment, folder)
    store = Store(folder / STORE)
    yield written(folder, [store.find(experiment.run_name)])
    store.close()


def test_every_picture_is_drawn_with_data_and_nothing_is_loaded(look, report):
    opened = look(report)
    assert opened.problems == []
    assert [url for url in opened.asked if not url.startswith(("file:", "data:", "blob:"))] == []
    counts = opened.page.evaluate(
        f"Object.fromEntries([...document.querySelectorAll('.vega')].map(p => "
        f"[p.dataset.name, p.querySelectorAll('{MARKS}').length]))"
    )
    kinds = {"population", "helped", "accuracy", "rates", "matrices", "weights", "convergence", "learning"}
    assert {name.split("-")[0] for name in counts} == kinds
    assert {name: number for name, number in counts.items() if number < 3} == {}


def test_a_system_named_like_a_script_stays_text(look, report):
    opened = look(report)
    assert opened.problems == []  # no dialog either
    assert opened.page.locator("script").count() == 3
    assert EVIL in opened.page.locator("#summary").inner_text()
    assert EVIL in opened.page.locator("[data-name='accuracy-label'] svg.marks").text_content()


def column(opened, place):
    cells = opened.page.locator("table.sortable").first.locator(f"tbody tr td:nth-child({place})")
    return [float(value) for value in cells.evaluate_all("cells => cells.map(cell => cell.dataset.value)")]


def test_tables_sort_by_mouse_and_by_keyboard(look, report):
    opened = look(report)
    head = opened.page.locator("table.sortable").first.locator("thead button").nth(1)
    head.click()
    first = column(opened, 2)
    assert first == sorted(first) and len(set(first)) > 1
    head.focus()
    opened.page.keyboard.press("Enter")
    assert column(opened, 2) == sorted(first, reverse=True)
    assert opened.page.locator("th[aria-sort=descending]").count() == 1


def test_the_slider_changes_the_matrix(look, report):
    opened = look(report)
    place = opened.page.locator("[data-name='matrices-label']")
    shades = "cells => cells.map(cell => cell.getAttribute('fill'))"
    cells = place.locator(".mark-rect.role-mark path")
    before = cells.evaluate_all(shades)
    slider = place.locator("input[type=range]")
    assert slider.input_value() == slider.get_attribute("max")
    slider.fill("0")
    opened.page.wait_for_timeout(300)
    after = cells.evaluate_all(shades)
    assert len(before) == len(after) == 9
    assert before != after
    assert opened.problems == []


def test_hover_names_the_client_and_what_it_met(look, report):
    opened = look(report)
    point = opened.page.locator("[data-name='helped-feature'] .mark-symbol.role-mark path").first
    point.scroll_into_view_if_needed()
    point.hover(force=True)
    tip = opened.page.locator("#vg-tooltip-element.visible")
    tip.wait_for(timeout=10_000)
    words = tip.inner_text()
    assert "client" in words and "met" in words and "noise" in words


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_overflows_a_phone(look, report, scheme):
    opened = look(report, viewport={"width": 380, "height": 700}, color_scheme=scheme)
    assert opened.problems == []
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 380
    wide = opened.page.evaluate(
        "[...document.querySelectorAll('figure, p, h1, h2, h3, .scroll, nav')]"
        ".filter(e => e.getBoundingClientRect().right > 381).map(e => e.tagName + ' ' + e.textContent.slice(0, 40))"
    )
    assert wide == []


def test_the_page_is_dark_at_night(look, report):
    def paper(scheme):
        opened = look(report, color_scheme=scheme)
        fill = opened.page.locator(".vega svg.marks text").first.evaluate("text => getComputedStyle(text).fill")
        return opened.page.evaluate("getComputedStyle(document.body).backgroundColor"), fill

    (day, ink), (night, chalk) = paper("light"), paper("dark")
    assert day == "rgb(255, 255, 255)" and night == "rgb(22, 24, 28)"
    assert ink != chalk


def test_print_leaves_out_what_paper_cannot_use(look, report):
    opened = look(report, color_scheme="dark")
    opened.page.emulate_media(media="print")
    assert not opened.page.locator("nav").is_visible()
    assert opened.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert (
        opened.page.locator(".vega svg.marks text").first.evaluate("t => getComputedStyle(t).fill") == "rgb(34, 34, 34)"
    )


def test_a_large_run_is_below_three_megabytes(look, tmp_path):
    """60 clients, 10 systems, 3 seeds, 30 slots, one of them with a matrix for each."""
    names = [f"system {number}" for number in range(10)]
    counts = {"s": {name: {client: (number + 1, 12) for client in range(60)} for number, name in enumerate(names)}}
    store, known = toy(tmp_path, {"s": {"none": counts["s"][names[0]], "tent": counts["s"][names[1]]}}, {}, (0, 1, 2))
    generator = torch.Generator().manual_seed(0)
    for seed in (0, 1, 2):
        for name in names:
            correct = torch.randint(0, 11, (60, 30), generator=generator).tolist()
            scores = [
                Score(
                    c,
                    "s",
                    t,
                    f"shift {t // 6}",
                    {"correct": correct[c][t], "count": 10.0, "seconds": 0.1, "bytes_up": 1.0},
                )
                for c in range(60)
                for t in range(30)
            ]
            drawn = [torch.rand(60, 60, generator=generator).softmax(1) for _ in range(30 if name == names[0] else 0)]
            figures = [Figure(-1, "s", t, trees.dump({"weights": weights})) for t, weights in enumerate(drawn)]
            store.note(known.id, name, -1, "baseline", "none")
            store.commit(Unit(known.id, name, seed), Commit(scores, figures))
    path = written(tmp_path, [store.runs()[0]])
    store.close()
    assert path.stat().st_size < 3_000_000
    assert look(path).problems == []
