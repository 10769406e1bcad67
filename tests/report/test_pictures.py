"""The numbers behind the pictures, worked out by hand on a toy store, and that each kind draws what it should."""

import json
import math
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from acclimate import trees
from acclimate.engine.evaluate import Commit, Figure, Score
from acclimate.report.differing import labels
from acclimate.report.pictures import draw, rates
from acclimate.report.pictures.exchanges import matrices
from acclimate.report.pictures.features import clouds
from acclimate.report.pictures.lines import Line, end_data, hidden, line_data, over_seeds, smooth
from acclimate.report.pictures.over_time import curves, reached
from acclimate.report.pictures.picture import Asked
from acclimate.report.pictures.rates import blocks_of, grouped, kinds_of, together
from acclimate.report.pictures.render import render
from acclimate.report.pictures.steps import Course, by_step
from acclimate.report.pictures.sweep import sweep
from acclimate.report.pictures.timetable import groups, met, timetable
from acclimate.report.pictures.tradeoff import tradeoff
from acclimate.report.pictures.weights import over_time
from acclimate.store.database import Store, Unit
from acclimate.store.records import Entry, Moment

EXPERIMENT = {
    "name": "two",
    "scenario": {"name": "hand"},
    "systems": [{"name": "mixed", "phases": [], "adapter": {"name": "tent"}, "aggregator": None}],
    "test": {"reset": "never"},
    "seeds": [0, 1],
}
SHIFTS = {3: ["fog", "fog", "snow"], 4: ["fog", "snow", "snow"]}
# correct of 4 images, by seed, client and slot
CORRECT = {0: {3: [4, 2, 0], 4: [0, 2, 4]}, 1: {3: [4, 2, 1], 4: [4, 2, 1]}}


def scored(seed, **more):
    return [
        Score(client, "s", slot, SHIFTS[client][slot], {"correct": correct, "count": 4.0, "seconds": 0.1, **more})
        for client, row in CORRECT[seed].items()
        for slot, correct in enumerate(row)
    ]


def matrix(slot, values, **more):
    return Figure(-1, "s", slot, trees.dump({"weights": torch.tensor(values), **more}))


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "store.sqlite")
    run = opened.run("two-0", EXPERIMENT, {})
    opened.note(run, "", -1, "streams", ["s"])
    opened.note(run, "mixed", -1, "baseline", "none")
    figures = [
        matrix(0, [[0.75, 0.25], [0.5, 0.5]]),
        matrix(2, [[0.1, 0.3, 0.6]], clients=torch.tensor([4]), columns=torch.tensor([4, 3, 9])),
    ]
    for seed in (0, 1):
        opened.commit(Unit(run, "none", seed), Commit(scored(seed)))
        opened.commit(Unit(run, "mixed", seed), Commit(scored(seed, bytes_up=8.0), figures))
    yield opened
    opened.close()


@pytest.fixture
def run(store):
    return store.runs()[0]


NOTHING = Asked()


def drawn(runs, asked=NOTHING):
    """Pictures by name."""
    return {picture.name: picture for _, pictures in draw(runs, asked) for picture in pictures}


def test_curves_are_the_mean_over_clients_with_the_range_over_seeds(run):
    """Slot 0: seed 0 (4 + 0) / 8, seed 1 (4 + 4) / 8; slot 1: 4 / 8 twice; slot 2: (0 + 4) / 8 and (1 + 1) / 8."""
    found = curves(run, list(run.moments("s")))
    assert list(found) == ["none", "mixed"]
    assert found["none"].mean.tolist() == [75.0, 50.0, 37.5]
    assert (found["none"].low.tolist(), found["none"].high.tolist()) == ([50.0, 50.0, 25.0], [100.0, 50.0, 50.0])


def test_curves_leave_out_batches_without_labels(store, run):
    unit = Unit(run.id, "blind", 0)
    values = [{"correct": 1.0, "count": 2.0}, {"correct": 0.0, "count": 0.0}, {"correct": 2.0, "count": 2.0}]
    store.commit(unit, Commit([Score(3, "s", slot, "fog", one) for slot, one in enumerate(values)]))
    np.testing.assert_array_equal(curves(run, list(run.moments("s")))["blind"].mean, [50.0, math.nan, 100.0])


def test_curves_end_where_fewer_than_half_of_the_clients_go_on():
    """Found in a run of Office-10: its last batch was one image of one client, and every line fell to zero."""
    slots = {0: 0, 1: 1, 2: 6, 3: 7}  # each client's last
    moments = [
        Moment(Entry("none"), 0, client, slot, 1.0) for client, last in slots.items() for slot in range(last + 1)
    ]
    assert reached(moments) == 6
    assert reached([moment for moment in moments if moment.client != 1]) == 6
    assert reached([moment for moment in moments if moment.client == 3]) == 7


def test_lines_that_cover_others_are_named():
    flat, other = np.full(3, 1.0), np.array([0.0, 5.0, 9.0])
    named = {name: Line(values, values, values) for name, values in (("a", flat), ("b", other), ("c", flat))}
    assert hidden(named) == ["a lies under c."]


def test_names_beside_lines_never_touch():
    lines = {name: Line(*[np.array([0.0, value])] * 3) for name, value in (("a", 50.0), ("b", 50.0), ("c", 50.1))}
    ends = end_data(line_data(lines, 1), height=300)
    places = sorted(end["at"] for end in ends)
    assert min(np.diff(places)) >= 15 / 300 * 50.1 * 0.99
    assert {end["s"]: end["y"] for end in ends} == {"a": 50.0, "b": 50.0, "c": 50.1}


def test_seeds_that_lack_a_slot_do_not_count_in_it():
    found = over_seeds([np.array([1.0, math.nan]), np.array([3.0, math.nan])])
    np.testing.assert_array_equal(found, [[2.0, math.nan], [1.0, math.nan], [3.0, math.nan]])
    assert smooth(np.array([0.0, math.nan, 6.0]), 3).tolist() == [0.0, 3.0, 6.0]


def test_by_step_is_over_all_images_and_the_mean_over_seeds():
    """Seed 0: (1 + 3, 3 + 3, 4 + 3) / (4 + 4), the second having stopped at its first step; seed 1: (2, 2, 2) / 2."""

    def course(correct, count):
        return Course(count, {"accuracy": 100 * np.array(correct) / count}, None)

    found = by_step([[course([1, 3, 4], 4), course([3], 4)], [course([2, 2, 2], 2)]])
    assert found["accuracy"].tolist() == [75.0, 87.5, 93.75]


def by_steps(client, slot, correct, count, **more):
    return Figure(client, "s", slot, trees.dump({"correct": torch.tensor(correct), "count": count, **more}))


def test_steps_have_the_step_that_was_kept_and_no_batches_without_labels(store, run):
    more = {"loss": torch.tensor([2.0, 1.0]), "entropy": torch.tensor([1.0, 0.5]), "chosen": torch.tensor(1)}
    figures = [by_steps(3, 0, [0, 0], 0, **more), by_steps(3, 1, [1, 2], 2, **more)]
    store.commit(Unit(run.id, "mixed", 0), Commit([], figures))
    picture = drawn([run])["steps-s"]
    accuracy, loss, entropy = picture.spec["hconcat"]
    assert [row["y"] for row in accuracy["layer"][0]["data"]["values"]] == [50.0, 100.0]
    assert [row["y"] for row in loss["layer"][0]["data"]["values"]] == [2.0, 1.0]
    assert entropy["layer"][1]["data"]["values"] == [{"s": "mixed", "x": 1.0}]
    assert "mixed 1.0" in picture.notes[1]


def cloud(client, slot, start, **more):
    points = torch.arange(12, dtype=torch.float32).view(2, 3, 2) + start
    return Figure(client, "s", slot, trees.dump({"features": points, **more}))


def test_clouds_are_of_the_first_client_and_slot_unless_asked(store, run):
    figures = [cloud(4, 0, 50, classes=torch.tensor([1, 2, 1])), cloud(3, 1, 20), cloud(3, 0, 10)]
    store.commit(Unit(run.id, "mixed", 0), Commit([], figures))
    (first,) = clouds(run, 0, "s", None).values()
    assert (first.client, first.points[0, 0].tolist(), first.classes) == (3, [10, 11], [])
    (asked,) = clouds(run, 0, "s", 4).values()
    assert (asked.client, asked.points[1, 2].tolist(), asked.classes) == (4, [60, 61], [1, 2, 1])
    assert clouds(run, 1, "s", None) == {}
    kinds = {row["k"] for row in drawn([run], Asked(client=4))["features-mixed-s"].spec["data"]["values"]}
    assert kinds == {"class 1", "class 2"}


def test_timetable_has_every_change_and_the_names_of_the_first_client(run):
    found = run.shifts(0, "s")
    assert found[4] == {0: "fog", 1: "snow", 2: "snow"}
    assert timetable(found) == (3, {0: "fog", 1: "", 2: "snow"}, False)
    assert timetable({3: found[3], 5: found[3]}).shared
    assert met(found, 1) == {"fog": [3], "snow": [4]}


def test_groups_are_those_who_meet_the_same_unless_the_scenario_has_its_own(store, run):
    shifts = [run.shifts(seed, "s") for seed in (0, 1)]
    assert groups(run, [0, 1], shifts) == {"client 3": {0: {3}, 1: {3}}, "client 4": {0: {4}, 1: {4}}}
    steady = [{1: {0: "fog", 1: "fog"}, 2: {0: "fog", 1: "fog"}, 3: {0: "snow", 1: "snow"}}]
    assert groups(run, [0], steady) == {"fog": {0: {1, 2}}, "snow": {0: {3}}}
    for seed in (0, 1):
        store.note(run.id, "", seed, "groups", {"3": "amazon", "4": "dslr"})
    assert groups(run, [0, 1], shifts) == {"amazon": {0: {3}, 1: {3}}, "dslr": {0: {4}, 1: {4}}}


def test_weights_belong_to_those_who_sent_unless_the_figure_names_others(run):
    (found,) = matrices(run, 0, "s").values()
    assert list(found) == [0, 2]
    assert (found[0].rows, found[0].columns) == ([3, 4], [3, 4])
    assert (found[2].rows, found[2].columns) == ([4], [4, 3, 9])
    np.testing.assert_allclose(found[2].values, [[0.1, 0.3, 0.6]])


def test_matrices_are_those_with_weights(store, run):
    cosines = Figure(-1, "s", 0, trees.dump({"cosines": torch.ones(2)}))
    store.commit(Unit(run.id, "ldawa", 0), Commit([], [cosines]))
    assert matrices(run, 0, "s").keys() == {"mixed"}


def test_over_time_is_one_row_of_each_matrix_and_nothing_where_somebody_was_absent(run):
    found = matrices(run, 0, "s")["mixed"]
    assert over_time(found, 4)[0] == {3: 0.5, 4: 0.5}
    assert over_time(found, 4)[2] == pytest.approx({4: 0.1, 3: 0.3, 9: 0.6})
    assert over_time(found, 3) == {0: {3: 0.75, 4: 0.25}, 2: {}}


def test_matrix_has_a_slider_and_whole_thousandths(run):
    spec = drawn([run])["matrices-s"].spec
    (slot,) = spec["params"]
    assert slot["value"] == 2
    assert slot["bind"] == {"input": "range", "min": 0, "max": 2, "step": 2, "name": "slot "}
    (panel,) = spec["concat"]
    assert panel["data"]["values"] == [
        {"slot": 0, "r": 3, "w": [750, 250, None]},
        {"slot": 0, "r": 4, "w": [500, 500, None]},
        {"slot": 2, "r": 4, "w": [300, 100, 600]},
    ]


def test_learnt_rates_of_systems_that_share_them_are_one(store, run):
    for seed, rate in ((0, 0.1), (1, 0.3)):
        for system, factor in (("batch", 1), ("online", 1), ("stats", 2)):
            store.note(run.id, system, seed, "knowledge rates", {"0.weight": factor * rate})
    assert together(run.rates()) == {
        ("batch", "online"): [{"0.weight": 0.1}, {"0.weight": 0.3}],
        ("stats",): [{"0.weight": 0.2}, {"0.weight": 0.6}],
    }


def test_grouped_rates_have_mean_and_deviation_over_seeds():
    """Seed 0: (1 + 3) / 2 = 2, seed 1: (3 + 5) / 2 = 4; mean 3, deviation √2."""
    seeds = [{"a.weight": 1.0, "a.bias": 3.0, "b.weight": 7.0}, {"a.weight": 3.0, "a.bias": 5.0, "b.weight": 7.0}]
    blocks = blocks_of(seeds[0], {"a": ["a.weight", "a.bias"], "b": ["b.weight"]})
    assert grouped(seeds, blocks) == {"a": (3.0, pytest.approx(math.sqrt(2))), "b": (7.0, 0.0)}
    assert grouped(seeds[:1], blocks)["a"] == (2.0, 0.0)


def test_blocks_of_statistics_without_a_scale_are_those_before_them():
    blocks = {"first": ["0.weight"], "second": ["2.weight"]}
    found = blocks_of(["0.weight", "1.running_mean", "1.running_var", "2.weight"], blocks)
    assert list(found.values()) == ["first", "first", "first", "second"]


def test_kinds_of_modules_know_norms_by_their_statistics_or_names():
    names = ["down.1.running_mean", "down.1.running_var", "down.1.weight", "down.0.weight", "norm2.bias", "positions"]
    assert list(kinds_of(names).values()) == [
        "running mean", "running variance", "norm weight", "conv/linear weight", "norm bias", "other",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("experiments", "expected"),
    [
        ([{"scenario": {"shift": "label"}, "seeds": [0]}, {"scenario": {"shift": "feature"}, "seeds": [1]}],
         ["scenario.shift=label", "scenario.shift=feature"]),
        ([{"systems": [{"name": "atp", "rounds": 1}]}, {"systems": [{"name": "atp", "rounds": 2}]}],
         ["systems.atp.rounds=1", "systems.atp.rounds=2"]),
        ([{"systems": [{"name": "a", "rounds": n}, {"name": "b", "rounds": n}]} for n in (1, 2)],
         ["rounds=1", "rounds=2"]),
        ([{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 2}], ["a=1, b=1", "a=1, b=2", "a=2, b=2"]),
        ([{"name": "x"}, {"name": "y"}], ["run 0", "run 1"]),
    ],
)  # fmt: skip
def test_labels_say_what_distinguishes_runs(store, experiments, expected):
    for number, one in enumerate(experiments):
        store.run(f"run {number}", one, {})
    assert labels(store.runs()[1:]) == expected


def test_draw_makes_the_pictures_there_are_data_for(run):
    pictures = drawn([run])
    assert list(pictures) == ["accuracy-s", "matrices-s", "weights-s"]
    assert "not finished" in pictures["accuracy-s"].notes[0]
    assert "slot 2" in pictures["matrices-s"].notes[0]
    assert "Weights of client 4" in drawn([run], Asked(client=4))["weights-s"].title
    assert "Shifts: snow (clients 3–4)." in pictures["matrices-s"].notes
    assert [json.dumps(one.spec) for one in drawn([run]).values()] == [json.dumps(p.spec) for p in pictures.values()]


def test_helped_and_harmed_are_told_apart_for_every_client_and_seed(store, run):
    worse = [one._replace(values={**one.values, "correct": 0.0}) for one in scored(0)]
    store.note(run.id, "bad", -1, "baseline", "none")
    store.commit(Unit(run.id, "bad", 0), Commit(worse))
    picture = drawn([run])["helped-s"]
    spec = picture.spec
    assert spec["facet"]["sort"] == ["bad: 2 of 2 harmed"]
    assert picture.notes[1] == "Everybody's accuracy is as without: mixed."
    first = next(row for row in spec["data"]["values"] if row["s"] == "bad")
    assert first == {"s": "bad", "c": 3, "seed": 0, "m": "fog, snow", "k": "harmed", "x": 50.0, "y": 0.0,
                     "f": "bad: 2 of 2 harmed"}  # fmt: skip


def test_the_round_of_best_validation_is_a_line_of_its_own(store, run):
    store.commit(Unit(run.id, "mixed", 0, "best validation"), Commit(scored(0)))
    assert store.find("two-0").entries == [Entry("none"), Entry("mixed"), Entry("mixed", selected=True)]
    assert "mixed (best validation)" in {
        row["s"] for row in drawn([store.find("two-0")])["accuracy-s"].spec["data"]["values"]
    }


def test_draw_compares_the_rates_of_all_runs_in_one_picture(store, run):
    other = store.run("two-1", {**EXPERIMENT, "scenario": {"name": "other"}}, {})
    for id, rate in ((run.id, 0.1), (other, -0.1)):
        store.note(id, "", -1, "blocks", {"0": ["0.weight"]})
        store.note(id, "mixed", 0, "knowledge rates", {"0.weight": rate})
    (picture,) = dict(draw(store.runs()))[rates]
    assert (picture.run, picture.name) == ("two-0", "rates-compared")
    first = picture.spec["hconcat"][0]["data"]["values"]
    assert [(row["s"], row["y"]) for row in first] == [("scenario.name=hand", 0.1), ("scenario.name=other", -0.1)]
    assert [p.name for p in dict(draw(store.runs()[1:]))[rates]] == ["rates"]


def test_a_picture_is_rendered_twice_the_same_with_its_names_in_it():
    named = {"tent": np.array([50.0, 60.0]), "none <b>": np.array([50.0, math.nan])}
    picture = sweep("x", "A title", "A note.", named, "images", ["5", "10"])
    first = render(picture)
    assert render(picture) == first
    words = {item.text for item in ElementTree.fromstring(first).iter("{http://www.w3.org/2000/svg}text")}
    assert {"A title", "A note.", "tent", "none <b>", "images", "10"} <= words
    assert render(picture, "png").startswith(b"\x89PNG")
    assert render(picture, "pdf").startswith(b"%PDF")


def test_e_is_counted_by_test_distribution(store, run):
    """Four images: e of 0, 0.02, 0.5 and 1 fall into the first bin twice, the middle one and the last one."""
    values = torch.tensor([0.0, 0.02, 0.5, 1.0], dtype=torch.float64)
    store.commit(Unit(run.id, "mixed", 0), Commit([], [Figure(3, "s", 0, trees.dump({"e": values}))]))
    rows = drawn([run])["balance"].spec["data"]["values"]
    assert [(row["a"], row["p"]) for row in rows if row["p"]] == [(0.0, 50.0), (0.48, 25.0), (0.96, 25.0)]
    assert {row["m"] for row in rows} == {0.38}


def test_prior_is_the_mean_over_clients_after_each_slot(store, run):
    figures = [
        Figure(client, "s", slot, trees.dump({"prior": torch.tensor([1.0 + slot * client, 1.0])}))
        for client in (3, 4)
        for slot in (0, 1)
    ]
    store.commit(Unit(run.id, "mixed", 0), Commit([], figures))
    rows = drawn([run])["prior"].spec["data"]["values"]
    assert [(row["s"][0], row["x"], row["y"]) for row in rows] == [
        ("α", 0, 1.0), ("β", 0, 1.0), ("α", 1, 4.5), ("β", 1, 1.0),
    ]  # fmt: skip


def test_prior_ends_where_fewer_than_half_of_the_clients_go_on(store, run):
    """Three clients begin, one of them goes on after the second slot."""
    figures = [
        Figure(client, "s", slot, trees.dump({"prior": torch.tensor([1.0, 1.0])}))
        for client, slots in ((4, 2), (3, 2), (5, 5))
        for slot in range(slots)
    ]
    store.commit(Unit(run.id, "mixed", 0), Commit([], figures))
    assert {row["x"] for row in drawn([run])["prior"].spec["data"]["values"]} == {0, 1}


def test_convergence_has_the_kept_rounds_and_the_one_chosen(store, run):
    for seed, best in ((0, 5), (1, 10)):
        note = {"round": best, "validation": {"5": 0.5, "10": 0.4 + 0.2 * seed}}
        store.note(run.id, "mixed", seed, "selected", note)
    spec = drawn([run])["convergence"].spec
    assert [(row["x"], row["y"], row["l"], row["h"]) for row in spec["data"]["values"]] == [
        (5, 50.0, 50.0, 50.0), (10, 50.0, 40.0, 60.0),
    ]  # fmt: skip
    assert [(ring["x"], ring["y"]) for ring in spec["layer"][-1]["data"]["values"]] == [(5, 50.0), (10, 60.0)]


def test_population_has_classes_shifts_and_who_has_no_labels(store, run):
    met = {"stream": "s", "segments": [["fog", 6], ["snow", 4]]}
    streams = [{**met, "client": 3, "labels": [9, 1]}, {**met, "client": 4, "labels": None}]
    source = [{"client": 0, "train": 3, "validation": 1, "labels": [2, 2]}]
    note = {"classes": 2, "source": source, "streams": streams, "remarks": ["Somebody got little."]}
    store.note(run.id, "", 0, "people", note)
    pictures = drawn([run])
    labels, shifts = pictures["population-s"].spec["hconcat"]
    assert [(row["c"], row["k"], row["p"]) for row in labels["data"]["values"]] == [(3, 0, 90.0), (3, 1, 10.0)]
    assert [(row["a"], row["b"], row["shift"]) for row in shifts["data"]["values"]][:2] == [
        (0, 6, "fog"),
        (6, 10, "snow"),
    ]
    assert "1 of 2 clients have no labels and no score." in pictures["population-s"].notes
    assert "1 clients with 4 images" in pictures["population-source"].notes[0]


def test_means_of_all_need_no_matrix(store, run):
    other = store.run("mean-0", EXPERIMENT, {})
    store.note(other, "", -1, "streams", ["s"])
    store.commit(Unit(other, "mixed", 0), Commit(scored(0, bytes_up=8.0), [matrix(0, [[0.5, 0.5], [0.5, 0.5]])]))
    assert "matrices-s" not in drawn([store.find("mean-0")])


def test_convergence_on_test_data_has_accuracy_and_both_losses(store, run):
    """After round 2: 3 of 4 images right, losses of 6 nats in all; clients reported 2.0 and 1.0 while they trained."""
    for seed in (0, 1):
        scores = [Score(3, "s", 0, "fog", {"correct": 3.0, "count": 4.0, "loss": 6.0})]
        store.commit(Unit(run.id, "mixed", seed, "round 2"), Commit(scores))
        store.note(run.id, "mixed", seed, "last phase", "0:atp#abc")
        store.add_training(run.id, "0:atp#abc", seed, [(1, 7, "loss", 2.0), (2, 7, "loss", 1.0)])
    picture = drawn([run])["course-s"]
    accuracy, loss = picture.spec["hconcat"]
    assert [(row["x"], row["y"]) for row in accuracy["data"]["values"]] == [(2, 75.0)]
    found = {(row["w"], row["x"]): row["y"] for row in loss["data"]["values"]}
    assert found == {("test data", 2): 1.5, ("training", 1): 2.0, ("training", 2): 1.0}
    ElementTree.fromstring(render(picture))


def test_agreement_is_the_mean_over_all_images_of_a_distribution(store, run):
    figures = [
        Figure(client, "s", 0, trees.dump({"e": torch.tensor([0.5]), "similarity": torch.tensor(values)}))
        for client, values in ((3, [0.2, 0.4]), (4, [0.9]))
    ]
    store.commit(Unit(run.id, "mixed", 0), Commit([], figures))
    picture = drawn([run])["agreement"]
    assert picture.spec["data"]["values"] == [{"s": "mixed", "d": "s", "y": 0.5}]
    ElementTree.fromstring(render(picture))


def test_tradeoff_has_a_point_for_each_method_and_lines_through_no_adaptation():
    picture = tradeoff(
        "x-tradeoff", "T", "n", {"none": (60.0, 70.0), "Tent": (65.0, 50.0)}, ("feature", "label"), (60, 70)
    )
    assert picture.spec["data"]["values"][1] == {"s": "Tent", "x": 65.0, "y": 50.0, "b": False}
    assert [layer["encoding"] for layer in picture.spec["layer"][:2]] == [
        {"x": {"datum": 60, "type": "quantitative"}},
        {"y": {"datum": 70, "type": "quantitative"}},
    ]
    text = render(picture).decode()
    assert "Tent" in text and "accuracy in %, label" in text
