import math
from xml.etree import ElementTree

import numpy as np
import pytest

from acclimate.report import charts, svg
from acclimate.report.charts import Grid, Group, Mark

NAMES = "{http://www.w3.org/2000/svg}"


def read(picture):
    root = ElementTree.fromstring(picture.encode())
    assert root.tag == f"{NAMES}svg"
    assert root.find(f"{NAMES}title").text
    assert root.find(f"{NAMES}desc").text
    return root


def words(root):
    return [item.text for item in root.iter(f"{NAMES}text")]


def paths(root, fill=None):
    return [item for item in root.iter(f"{NAMES}path") if fill is None or item.get("fill") == fill]


def test_lines_have_names_marks_and_gaps():
    values = {"a & b": np.array([10.0, math.nan, 30.0]), "c": np.array([20.0, 20.0, 20.0])}
    root = read(charts.lines("A < B", ["A note."], values, [Mark(0, "fog"), Mark(2, "snow")], "slot", "accuracy"))
    first, second = paths(root, "none")
    assert first.find(f"{NAMES}title").text == "a & b"
    assert (first.get("d").count("M"), second.get("d").count("M")) == (2, 1)
    assert {"A < B", "A note.", "a & b", "c", "fog", "snow", "slot", "accuracy", "0", "1", "2"} <= set(words(root))


def test_lines_that_cover_others_are_named():
    up, down = np.array([0.0, 50.0, 100.0]), np.array([90.0, math.nan, 10.0])
    values = {"a": up, "b": down, "c": up + 0.01, "d": up + 2.0, "e": down.copy()}
    root = read(charts.lines("t", ["Said before."], values, [], "slot", "accuracy"))
    assert [text for text in words(root) if "under" in text] == ["a lies under c.", "b lies under e."]


def test_lines_that_cover_several_others_are_named_once():
    values = {name: np.array([0.0, 50.0]) for name in "abc"} | {"d": np.array([9.0, 9.0])}
    root = read(charts.lines("t", [], values, [], "slot", "accuracy"))
    assert [text for text in words(root) if "under" in text] == ["a, b lie under c."]


def test_lines_of_many_steps_are_smoothed_and_say_so():
    values = np.zeros(300)
    values[150] = 7.0
    assert charts.window_of(300) == 7
    smoothed = charts.smooth(values, 7)
    assert smoothed[147:154].tolist() == [1.0] * 7
    assert smoothed[[146, 154]].tolist() == [0.0, 0.0]
    picture = charts.lines("t", ["n"], {"a": values}, [], "slot", "y")
    assert "Smoothed: a centred mean over 7 slots." in words(read(picture))


def test_heatmaps_share_their_colours():
    grids = [Grid("big", np.eye(2), ["1", "2"], ["1", "2"]), Grid("small", np.full((1, 1), 0.25), ["3"], ["4"])]
    root = read(charts.heatmaps("t", ["n"], grids, ("to", "from"), (240, 240)))
    most, quarter = svg.shade(1), svg.shade(0.5)  # colours follow the square root
    assert next(path.get("d") for path in paths(root, most)) == "M0 0h1v1h-1zM1 1h1v1h-1z"
    assert "M0 0h1v1h-1z" in [path.get("d") for path in paths(root, quarter)]
    assert {"big", "small", "weight", "to", "from", "1", "0.2"} <= set(words(root))


def test_heatmaps_average_what_is_too_fine_and_show_who_is_absent():
    values = np.tile(np.arange(300) % 2, (2, 1)).astype(float)
    values[1] = math.nan
    labels = [str(number) for number in range(300)]
    picture = charts.heatmaps("t", ["n"], [Grid("g", values, ["1", "2"], labels)], ("client", "slot"), (760, 180))
    root = read(picture)
    assert "A cell is the mean of 2 neighbouring slots." in words(root)
    assert [path.get("d") for path in paths(root, svg.ABSENT)] == ["M0 1h150v1h-150z"]
    assert "298" not in words(root)  # far fewer labels than slots


def test_heatmaps_of_many_clients_and_slots_stay_small():
    rng = np.random.default_rng(0)
    labels = [str(number) for number in range(750)]
    grids = [Grid(f"g{n}", rng.dirichlet(np.ones(20), 750).T, labels[:20], labels) for n in range(6)]
    assert len(charts.heatmaps("t", ["n"], grids, ("client", "slot"), (760, 180))) < 400_000


def test_bars_stand_on_zero_with_whiskers():
    groups = [Group("conv", [(1.0, 0.5), (-1.0, 0.0)]), Group("head", [(2.0, 0.0), None])]
    root = read(charts.bars("t", ["n"], {"panel": groups}, ["one", "two"], "rate"))
    drawn = [r for r in root.iter(f"{NAMES}rect") if r.get("fill") in (svg.fill(0), svg.fill(1))]
    bars = [r for r in drawn if float(r.get("width")) != 12]
    first, below, second = ((float(r.get("y")), float(r.get("height"))) for r in bars)
    assert first[0] + first[1] == pytest.approx(below[0], abs=0.02)  # both touch zero
    assert second[1] == pytest.approx(2 * first[1], abs=0.02)
    whiskers = [item for item in root.iter(f"{NAMES}line") if item.get("stroke") == svg.INK]
    assert len(whiskers) == 3 + 1  # one whisker of three strokes, and the line of zero
    assert {"panel", "conv", "head", "one", "two", "rate", "−1"} <= set(words(root))


def test_bars_of_nothing_but_zero_are_drawn():
    root = read(charts.bars("t", ["n"], {"panel": [Group("a", [(0.0, 0.0)])]}, ["one"], "rate"))
    (bar,) = [item for item in root.iter(f"{NAMES}rect") if item.get("fill") == svg.fill(0)]
    assert float(bar.get("height")) == 0
    assert {"a", "0"} <= set(words(root))


@pytest.mark.parametrize(("low", "high"), [(0, 0), (-0.003, 0.004), (12.5, 99.1), (0, 1e-7)])
def test_ticks_are_round_and_inside(low, high):
    ticks = svg.Axis(low, high, 0, 100).ticks()
    assert 1 <= len(ticks) <= 8
    assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in ticks)


def test_binned_means_leave_out_what_is_not_a_number():
    values = np.array([[1.0, math.nan, math.nan, math.nan, 5.0]])
    each, found = charts.binned(values, 1, 3)
    assert each == 2
    np.testing.assert_array_equal(found, [[1.0, math.nan, 5.0]])


def test_clouds_have_a_point_for_each_image_in_each_panel_and_one_in_the_legend():
    panels = {
        "before": np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]]),
        "after": np.array([[0.0, 0.0], [4.0, 4.0], [2.0, 0.0]]),
    }
    root = read(charts.clouds("Features", ["Note."], panels, [3, 7, 3], "class"))
    found = [*root.iter(f"{NAMES}circle")]
    assert len(found) == 3 + 3 + 2
    assert {"before", "after", "class 3", "class 7"} <= set(words(root))
    same = [item.get("fill") for item in found]
    assert same[0] == same[2] != same[1]
    assert float(found[1].get("cx")) - float(found[0].get("cx")) == pytest.approx((320 - 16) / 4, abs=0.1)  # one scale


def test_clouds_of_many_points_stay_small_and_say_so():
    values = np.random.default_rng(0).normal(size=(1500, 2))
    root = read(charts.clouds("Features", [], {"before": values, "after": values}, [0] * 1500, "class"))
    assert len([*root.iter(f"{NAMES}circle")]) == 2 * 500 + 1
    assert "One point in 3 is drawn." in words(root)


def test_points_differ_for_fourteen_kinds():
    assert len({svg.point(0, 0, number) for number in range(14)}) == 14
