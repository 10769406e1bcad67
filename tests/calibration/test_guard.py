"""The guard's calibration: a rule for one adapter on one model, from labelled validation data."""

import pytest
import torch
from torch import nn

import acclimate as ac
import battery
from acclimate import trees
from acclimate.calibration.guard import Guard
from acclimate.contracts import Adapter, AdapterRecipe
from acclimate.harm import Signals, Source
from acclimate.mixture import Answers
from acclimate.played import drawn_classes, drawn_shift, nothing
from acclimate.rule import DEFAULT, Sums, solved, summed
from classifiers import cnn, images, labelled


def test_rule_of_two_streams_by_hand():
    """One signal, 1/2 for twelve images, nine of them won, and 1 for five, all lost. With a ridge of 1 towards 0.2,
    w = (9 · 1/2 − 5 + 0.2) / (12 / 4 + 5 + 1) = −0.3 / 9, with a variance of 1 / 9.
    """
    sums = Sums(torch.tensor([[12 * 0.25 + 5.0]]), torch.tensor([9 * 0.5 - 5.0]), Answers.none(2, 4))
    rule = solved(sums, 1.0, torch.tensor([0.2]))
    torch.testing.assert_close(rule.weights, torch.tensor([-0.3 / 9]))
    torch.testing.assert_close(rule.spread, torch.tensor([[1 / 9]]))


class Once(Adapter):
    """Says the next class for the second half of a batch."""

    def predict(self, x):
        logits = super().predict(x)
        return torch.cat([logits[: len(x) // 2], logits[len(x) // 2 :].roll(1, -1)])


def test_sums_count_every_disagreement():
    """Two batches of 20 without a shift of classes, half of each differing: 20 disagreements, all of them lost."""
    model = nn.Linear(3, 3)
    model.weight.data, model.bias.data = torch.eye(3), torch.zeros(3)
    torch.manual_seed(0)
    phase = Guard(AdapterRecipe(Once), batch_size=20, segments=1, images=40)
    played = phase.played(Once(model), torch.eye(3).repeat(30, 1), torch.arange(90) % 3, 3)
    sums = summed(played, window=1e9, answers=Answers.none(3, 3))
    assert sums.squares[0, 0] == pytest.approx(20.0)
    assert sums.gains[0] == pytest.approx(-20.0)


class Wrong(Adapter):
    """Says the next class."""

    def predict(self, x):
        return super().predict(x).roll(1, -1)


def test_rule_says_that_an_adapter_that_is_always_wrong_does_harm():
    people, known = battery.population(), battery.trained()
    from acclimate import params

    model = params.load(battery.build()(), known.of(None)["model"]).eval()
    held = people.examples(people.source[0][0])
    x, y = held.x, model(held.x).argmax(-1)  # so that the model is right
    torch.manual_seed(0)
    phase = Guard(AdapterRecipe(Wrong), segments=3, images=40)
    answers = phase.answers(Wrong(model), [(x, y)], 10)
    rule = phase.export(summed(phase.played(Wrong(model), x, y, 10), phase.window, answers), None, 0)["rule"]
    source = Source(Wrong(model))
    _, phi = Signals(80.0, rule.classes).add(source.look(x), Wrong(model).predict(x), 0.0, len(x))
    assert float((phi @ rule.weights).mean()) < -0.3


def test_from_the_second_round_on_clients_know_the_answers_of_all(monkeypatch):
    """Two clients with a class each, whose six examples the model sees as (1, 0) and (0, 1)."""
    seen = []

    def noted(stream, window, answers):
        seen.append(answers.counts.tolist())
        return summed(stream, window, answers)

    monkeypatch.setattr("acclimate.calibration.guard.summed", noted)
    model = nn.Linear(2, 2, bias=False)
    model.weight.data = torch.eye(2)
    own = {label: [(torch.eye(2)[[label] * 6], torch.full((6,), label))] for label in (0, 1)}
    knowledge = ac.calibrate(model, "em", own, guard=True, rounds=2, segments=1, images=40)
    assert seen[1:] == [[6.0, 0.0], [0.0, 6.0], [6.0, 6.0], [6.0, 6.0]]  # the first is of the server, with none
    assert knowledge["rule"].classes.there.tolist() == [True, True]
    alone = Guard().answers(Adapter(model), own[0], 2)
    torch.testing.assert_close(alone.features, torch.tensor([[6.0, 0.0], [0.0, 0.0]]).double())


def test_calibration_without_an_adapter_leaves_the_default():
    outcome = battery.run_algorithm(Guard(), known=battery.trained(), position=1, seed=5)
    rule = outcome.algorithm.export(outcome.server, None, 0)["rule"]
    torch.testing.assert_close(rule.weights, DEFAULT.weights)


def test_calibrate_and_wrap_with_a_guard():
    model, batch = cnn(), images()
    knowledge = ac.calibrate(model, "bbse", labelled(batch), guard=True, segments=2, images=40)
    assert set(knowledge) == {"confusion", "rule"}
    adapted = ac.wrap(model, "bbse", guard={"every": 2}, **knowledge)
    assert adapted(batch).isfinite().all()
    assert trees.equal(adapted.adapter.rule, knowledge["rule"])
    assert ac.wrap(model, "tent", guard=True).method.options["adapter"]["name"] == "tent"
    assert ac.wrap(model, "tent", guard=False).method.name == "tent"


def test_played_streams_stay_in_the_range_of_the_data():
    torch.manual_seed(0)
    x, y = torch.rand(40, 1, 8, 8) * 0.5, torch.arange(40) % 4
    for _ in range(20):
        shown = drawn_shift(x, shifted=True)(x)
        assert shown.shape == x.shape
        assert x.min() <= shown.min() <= shown.max() <= x.max()
        weights = drawn_classes(y, 4)
        assert weights.sum() > 0
    assert nothing(x, 5).shape == (5, 1, 8, 8)
    tokens = torch.randint(9, (6, 3))
    assert torch.equal(drawn_shift(tokens, shifted=True)(tokens), tokens)
