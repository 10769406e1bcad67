import math

import numpy as np
import pytest
import torch

from acclimate import trees
from acclimate.engine.evaluate import Commit, Figure, Score
from acclimate.report import series
from acclimate.report.figures import draw
from acclimate.store.database import Store, Unit

EXPERIMENT = {
    "name": "two",
    "scenario": {"name": "hand"},
    "systems": [{"name": "mixed", "phases": []}],
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


def test_accuracy_is_the_mean_over_clients_and_seeds_in_each_slot(store, run):
    """Slot 0: (4 + 0 + 4 + 4) / 16, slot 1: 8 / 16, slot 2: (0 + 4 + 1 + 1) / 16."""
    found = series.accuracy(store, run, "s")
    assert found.keys() == {"none", "mixed"}
    assert found["none"].tolist() == [0.75, 0.5, 0.375]


def test_accuracy_leaves_out_batches_without_labels(store, run):
    unit = Unit(run["id"], "blind", 0)
    values = [{"correct": 1.0, "count": 2.0}, {"correct": 0.0, "count": 0.0}, {"correct": 2.0, "count": 2.0}]
    store.commit(unit, Commit([Score(3, "s", slot, "fog", one) for slot, one in enumerate(values)]))
    np.testing.assert_array_equal(series.accuracy(store, run, "s")["blind"], [0.5, math.nan, 1.0])


def by_step(client, slot, correct, count):
    return Figure(client, "s", slot, trees.dump({"correct": torch.tensor(correct), "count": count}))


def test_accuracy_by_step_is_over_all_images_and_the_mean_over_seeds(store, run):
    """Seed 0: (1 + 3, 3 + 3, 4 + 3) / (4 + 4), client 4 having stopped at its first step; seed 1: (2, 2, 2) / 2."""
    steps = {0: [by_step(3, 0, [1, 3, 4], 4), by_step(4, 0, [3], 4)], 1: [by_step(3, 0, [2, 2, 2], 2)]}
    for seed, figures in steps.items():
        store.commit(Unit(run["id"], "mixed", seed), Commit([], figures))
    other = Figure(3, "s", 0, trees.dump({"entropy": torch.ones(2)}))
    store.commit(Unit(run["id"], "none", 0), Commit([], [other]))
    found = series.accuracy_by_step(store, run, "s")
    assert found.keys() == {"mixed"}
    assert found["mixed"].tolist() == [0.75, 0.875, 0.9375]
    assert "two-0-steps-s.svg" in draw(store, [run])["two-0"]


def test_accuracy_by_step_leaves_out_batches_without_labels(store, run):
    figures = [by_step(3, 0, [0, 0], 0), by_step(3, 1, [1, 2], 2)]
    store.commit(Unit(run["id"], "mixed", 0), Commit([], figures))
    assert series.accuracy_by_step(store, run, "s")["mixed"].tolist() == [0.5, 1.0]


def cloud(client, slot, start, **more):
    points = torch.arange(12, dtype=torch.float32).view(2, 3, 2) + start
    return Figure(client, "s", slot, trees.dump({"features": points, **more}))


def test_clouds_are_of_the_first_client_and_slot_unless_asked(store, run):
    figures = [cloud(4, 0, 50, classes=torch.tensor([1, 2, 1])), cloud(3, 1, 20), cloud(3, 0, 10)]
    store.commit(Unit(run["id"], "mixed", 0), Commit([], figures))
    (first,) = series.clouds(store, run, 0, "s", None).values()
    assert (first.client, first.points[0, 0].tolist(), first.classes) == (3, [10, 11], [])
    (asked,) = series.clouds(store, run, 0, "s", 4).values()
    assert (asked.client, asked.points[1, 2].tolist(), asked.classes) == (4, [60, 61], [1, 2, 1])
    assert series.clouds(store, run, 1, "s", None) == {}
    pictures = draw(store, [run])["two-0"]
    assert "class" not in pictures["two-0-features-mixed-s.svg"]
    assert "class 2" in draw(store, [run], client=4)["two-0"]["two-0-features-mixed-s.svg"]


def test_timetable_has_every_change_and_the_names_of_the_first_client(store, run):
    found = series.shifts(store, run, 0, "s")
    assert found[4] == {0: "fog", 1: "snow", 2: "snow"}
    assert series.timetable(found) == (3, {0: "fog", 1: "", 2: "snow"}, False)
    assert series.timetable({3: found[3], 5: found[3]}).shared
    assert series.met(found, 1) == {"fog": [3], "snow": [4]}


def test_weights_belong_to_those_who_sent_unless_the_figure_names_others(store, run):
    assert series.exchanges(store, run, 0, "s") == {"mixed": [0, 2]}
    first, last = series.weights(store, run, "mixed", 0, "s", [0, 2])
    assert (first.rows, first.columns) == ([3, 4], [3, 4])
    assert (last.rows, last.columns) == ([4], [4, 3, 9])
    np.testing.assert_allclose(last.values, [[0.1, 0.3, 0.6]])


def test_exchanges_are_those_with_a_matrix(store, run):
    cosines = Figure(-1, "s", 0, trees.dump({"cosines": torch.ones(2)}))
    store.commit(Unit(run["id"], "ldawa", 0), Commit([], [cosines]))
    assert series.exchanges(store, run, 0, "s").keys() == {"mixed"}


def test_over_time_is_one_row_of_each_matrix_with_gaps_where_somebody_was_absent(store, run):
    others, values = series.over_time(series.weights(store, run, "mixed", 0, "s", [0, 2]), 4)
    assert others == [3, 4, 9]
    np.testing.assert_allclose(values, [[0.5, 0.3], [0.5, 0.1], [math.nan, 0.6]])
    others, values = series.over_time(series.weights(store, run, "mixed", 0, "s", [0, 2]), 3)
    np.testing.assert_allclose(values, [[0.75, math.nan], [0.25, math.nan]])


def test_learnt_rates_of_systems_that_share_them_are_one(store, run):
    for seed, rate in ((0, 0.1), (1, 0.3)):
        for system, factor in (("batch", 1), ("online", 1), ("stats", 2)):
            store.note(run["id"], system, seed, "knowledge rates", {"0.weight": factor * rate})
    found = series.learnt_rates(store, run)
    assert found == {
        "batch, online": [{"0.weight": 0.1}, {"0.weight": 0.3}],
        "stats": [{"0.weight": 0.2}, {"0.weight": 0.6}],
    }


def test_grouped_rates_have_mean_and_deviation_over_seeds():
    """Seed 0: (1 + 3) / 2 = 2, seed 1: (3 + 5) / 2 = 4; mean 3, deviation √2."""
    seeds = [{"a.weight": 1.0, "a.bias": 3.0, "b.weight": 7.0}, {"a.weight": 3.0, "a.bias": 5.0, "b.weight": 7.0}]
    blocks = series.blocks_of(seeds[0], {"a": ["a.weight", "a.bias"], "b": ["b.weight"]})
    assert series.grouped(seeds, blocks) == {"a": (3.0, pytest.approx(math.sqrt(2))), "b": (7.0, 0.0)}
    assert series.grouped(seeds[:1], blocks)["a"] == (2.0, 0.0)


def test_blocks_of_statistics_without_a_scale_are_those_before_them():
    blocks = {"first": ["0.weight"], "second": ["2.weight"]}
    found = series.blocks_of(["0.weight", "1.running_mean", "1.running_var", "2.weight"], blocks)
    assert list(found.values()) == ["first", "first", "first", "second"]


def test_kinds_of_modules_know_norms_by_their_statistics_or_names():
    names = ["down.1.running_mean", "down.1.running_var", "down.1.weight", "down.0.weight", "norm2.bias", "positions"]
    assert list(series.kinds_of(names).values()) == [
        "running mean", "running variance", "norm weight", "conv/linear weight", "norm bias", "other",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("experiments", "expected"),
    [
        ([{"scenario": {"shift": "label"}, "seeds": [0]}, {"scenario": {"shift": "feature"}, "seeds": [1]}],
         ["scenario.shift=label", "scenario.shift=feature"]),
        ([{"systems": [{"name": "atp", "rounds": 1}]}, {"systems": [{"name": "atp", "rounds": 2}]}],
         ["systems.atp.rounds=1", "systems.atp.rounds=2"]),
        ([{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 2}], ["a=1, b=1", "a=1, b=2", "a=2, b=2"]),
        ([{"name": "x"}, {"name": "y"}], ["run 0", "run 1"]),
    ],
)  # fmt: skip
def test_labels_say_what_distinguishes_runs(experiments, expected):
    runs = [{"name": f"run {number}", "experiment": one} for number, one in enumerate(experiments)]
    assert series.labels(runs) == expected


def test_draw_makes_the_pictures_there_are_data_for(store, run):
    pictures = draw(store, [run])["two-0"]
    assert list(pictures) == ["two-0-accuracy-s.svg", "two-0-matrices-s.svg", "two-0-weights-s.svg"]
    assert draw(store, [run])["two-0"] == pictures
    assert "not finished" in pictures["two-0-accuracy-s.svg"]
    assert "slot 2" in pictures["two-0-matrices-s.svg"]
    assert "Weights of client 4" in draw(store, [run], client=4)["two-0"]["two-0-weights-s.svg"]
    assert "fog (client 3); snow (client 4)" not in pictures["two-0-matrices-s.svg"]
    assert "Shifts: snow (clients 3–4)." in pictures["two-0-matrices-s.svg"]


def test_draw_compares_the_rates_of_all_runs_in_one_picture(store, run):
    other = store.run("two-1", {**EXPERIMENT, "scenario": {"name": "other"}}, {})
    for id, rate in ((run["id"], 0.1), (other, -0.1)):
        store.note(id, "", -1, "blocks", {"0": ["0.weight"]})
        store.note(id, "mixed", 0, "knowledge rates", {"0.weight": rate})
    found = draw(store, store.runs())
    assert list(found["two-1"]) == []
    assert "scenario.name=other" in found["two-0"]["two-0-rates-compared.svg"]
    assert list(draw(store, store.runs()[1:])["two-1"]) == ["two-1-rates.svg"]
