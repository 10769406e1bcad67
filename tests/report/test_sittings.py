"""A piece measured bit by bit: other seeds and systems join, what is measured again or otherwise is replaced."""

import copy

import pytest

from acclimate.report.sittings import joined, together


def sitting(seeds, accuracies, code="a", rounds=2, noise=0.1, **more):
    """One run of these seeds: system → accuracy in the first of them, one hundredth more in every further one."""
    systems = {
        name: {
            "of": name,
            "seeds": list(seeds),
            "code": [code],
            "remarks": [f"{name} was here"],
            "streams": {
                "test": {
                    "accuracy": [accuracy + at / 100 for at in range(len(seeds))],
                    "groups": {"mean": [accuracy] * len(seeds)},
                    "clients": {str(seed): {"7": accuracy} for seed in seeds},
                }
            },
        }
        for name, accuracy in accuracies.items()
    }
    plain = [{"name": name, "phases": [{"name": "fedavg", "rounds": rounds}]} for name in accuracies]
    experiment = {"scenario": {"noise": noise}, "systems": plain, "seeds": list(seeds)}
    return {"experiment": experiment, "systems": systems, **more}


def accuracies(sittings, name):
    """Seed → accuracy, of all sittings together."""
    whole = together([one["systems"][name] for one in sittings if name in one["systems"]])
    return dict(zip(whole["seeds"], whole["streams"]["test"]["accuracy"], strict=True))


def test_other_seeds_join_in_their_order():
    found = joined([sitting([0, 2], {"em": 0.5})], sitting([1], {"em": 0.8}))
    assert accuracies(found, "em") == {0: 0.5, 1: 0.8, 2: 0.51}
    whole = together([one["systems"]["em"] for one in found])["streams"]["test"]
    assert whole["groups"] == {"mean": [0.5, 0.8, 0.5]}
    assert whole["clients"] == {"0": {"7": 0.5}, "1": {"7": 0.8}, "2": {"7": 0.5}}


def test_other_systems_join():
    found = joined([sitting([0], {"em": 0.5})], sitting([0], {"tent": 0.8}))
    assert (accuracies(found, "em"), accuracies(found, "tent")) == ({0: 0.5}, {0: 0.8})
    assert [one["experiment"]["systems"][0]["name"] for one in found] == ["em", "tent"]


def test_what_is_measured_again_is_replaced_and_the_rest_stays():
    found = joined([sitting([0, 1], {"em": 0.5, "tent": 0.3})], sitting([1], {"em": 0.8}))
    assert accuracies(found, "em") == {0: 0.5, 1: 0.8}
    assert accuracies(found, "tent") == {0: 0.3, 1: 0.31}
    again = joined(found, sitting([0, 1], {"em": 0.1, "tent": 0.2}))
    assert len(again) == 1  # nothing is left of the others


@pytest.mark.parametrize("changed", [{"code": "b"}, {"rounds": 3}])
def test_a_system_with_other_code_or_settings_takes_the_place_of_all_its_seeds(changed):
    found = joined([sitting([0], {"em": 0.5, "tent": 0.3})], sitting([1], {"em": 0.8}, **changed))
    assert accuracies(found, "em") == {1: 0.8}
    assert accuracies(found, "tent") == {0: 0.3}


@pytest.mark.parametrize("changed", [{"noise": 0.2}, {"overrides": ["phases.0.rounds=1", "seeds=[1]"]}])
def test_what_was_measured_with_other_settings_never_joins(changed):
    found = joined([sitting([0], {"em": 0.5})], sitting([1], {"tent": 0.8}, **changed))
    assert [list(one["systems"]) for one in found] == [["tent"]]


def test_what_a_choice_of_systems_added_to_compare_with_is_left_out():
    """Beside a system with a training of its own, no adaptation is another one than that of the whole table."""
    chosen = sitting([1], {"none": 0.4, "em": 0.5}, overrides=["seeds=[1]", "systems=[em]"])
    chosen["experiment"]["systems"] = chosen["experiment"]["systems"][1:]
    found = joined([sitting([0, 1], {"none": 0.6})], chosen)
    assert (accuracies(found, "none"), accuracies(found, "em")) == ({0: 0.6, 1: 0.61}, {1: 0.5})


def test_a_choice_of_seeds_and_systems_is_no_other_setting():
    new = sitting([1], {"em": 0.8}, overrides=["seeds=[1]", "systems=[em]"])
    assert len(joined([sitting([0], {"em": 0.5})], new)) == 2


def test_results_that_do_not_say_their_code_join():
    old = sitting([0], {"em": 0.5})
    del old["systems"]["em"]["code"]
    assert accuracies(joined([old], sitting([1], {"em": 0.8})), "em") == {0: 0.5, 1: 0.8}


def test_seeds_that_cannot_be_told_apart_are_replaced_together():
    """A group that one of two seeds lacks has one value, and nobody knows whose."""
    old = sitting([0, 1], {"em": 0.5})
    old["systems"]["em"]["streams"]["test"]["groups"]["rare"] = [0.4]
    assert accuracies(joined([old], sitting([1], {"em": 0.8})), "em") == {1: 0.8}


def test_joining_changes_nothing_in_place():
    old, new = sitting([0, 1], {"em": 0.5}), sitting([1], {"em": 0.8})
    before = copy.deepcopy((old, new))
    together([one["systems"]["em"] for one in joined([old], new)])
    assert (old, new) == before


def test_what_was_measured_later_counts_whichever_is_joined_first():
    old = sitting([0, 1], {"em": 0.5, "tent": 0.3}, finished="2026-01-01")
    new = sitting([0, 1, 2], {"tent": 0.8}, code="b", finished="2026-02-01")
    for found in (joined([old], new), joined([new], old)):
        assert accuracies(found, "tent") == pytest.approx({0: 0.8, 1: 0.81, 2: 0.82})
        assert accuracies(found, "em") == {0: 0.5, 1: 0.51}
