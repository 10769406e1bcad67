"""Clients that lie: what they send, by hand, and that a defence keeps what a plain mean loses."""

from dataclasses import replace

import pytest
import torch

import battery
from acclimate import trees
from acclimate.scenarios.hostile import Hostile
from acclimate.training.fedavg import FedAvg
from acclimate.training.robust import MultiKrum, Trimmed

SENT, HONEST = {"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([1.5, 1.0])}


@pytest.mark.parametrize(
    ("attack", "lie"),
    [
        ("sign", [0.5, 3.0]),  # 1 − 0.5, 2 + 1
        ("scaled", [51.0, -98.0]),  # 1 + 100 · 0.5, 2 − 100 · 1
        ("huge", [5e29, -1e30]),
        ("replayed", [1.0, 2.0]),
        ("labels", [1.5, 1.0]),
    ],
)
def test_lie_by_hand(attack, lie):
    assert Hostile(0.2, attack).lie(HONEST, SENT, 0)["w"].tolist() == pytest.approx(lie)


def test_negative_variances_and_nothing_else():
    told = Hostile(0.2, "negative-variance").lie(
        {"bn.running_var": torch.ones(2), **HONEST}, {"a": torch.ones(2), **SENT}
    )
    assert told["bn.running_var"].tolist() == [-1.0, -1.0]
    assert torch.equal(told["w"], HONEST["w"])


def test_colluding_clients_send_the_same():
    hostile = Hostile(0.2, "colluding")
    one, other = hostile.lie(HONEST, SENT, 0, 3), hostile.lie({"w": HONEST["w"] * 9}, SENT, 0, 3)
    assert torch.equal(one["w"], other["w"])
    assert not torch.equal(one["w"], hostile.lie(HONEST, SENT, 0, 4)["w"])


def test_liars_are_a_share_of_all_and_follow_the_seed():
    hostile = Hostile(0.2)
    assert len(hostile.among(range(10), 0)) == 2
    assert hostile.among(range(10), 0) == hostile.among(range(10), 0)
    assert len({hostile.among(range(100), seed) for seed in range(5)}) == 5
    assert Hostile().among(range(10), 0) == frozenset()


def test_population_without_liars_is_as_before():
    plain, asked = battery.SCENARIO.build(3), replace(battery.SCENARIO, hostile=Hostile(0.0, "huge")).build(3)
    assert (asked.digest, asked.liars) == (plain.digest, frozenset())
    assert replace(battery.SCENARIO, hostile=Hostile(0.2)).build(3).digest != plain.digest


@pytest.mark.parametrize("attack", ["sign", "scaled", "huge", "colluding", "labels", "replayed", "negative-variance"])
def test_defended_model_stays_near_the_honest_one(attack):
    """One of four lies. However far it throws a plain mean, what the defences make is within the honest clients'."""
    people = replace(battery.SCENARIO, hostile=Hostile(0.25, attack)).build(3)
    honest = battery.run_algorithm(FedAvg(), rounds=2, cohort="all").server.w
    size = torch.stack([tensor.double().norm() for tensor in honest.values()]).norm()
    for phase in (Trimmed(share=0.25), MultiKrum(share=0.25)):
        outcome = battery.run_algorithm(phase, rounds=2, cohort="all", people=people)
        assert trees.finite(outcome.server)
        apart = [(outcome.server.of.w[name].double() - tensor.double()).norm() for name, tensor in honest.items()]
        assert torch.stack(apart).norm() < 0.5 * size
