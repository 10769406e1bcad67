"""The guard's calibration: a rule for one adapter on one model, from labelled validation data."""

import pytest
import torch
from torch import nn

import acclimate as ac
import battery
from acclimate.calibration.guard import Guard, Sums, solved
from acclimate.contracts import Adapter, AdapterRecipe
from acclimate.harm import RULE
from acclimate.played import drawn_classes, drawn_shift, nothing
from classifiers import cnn, images, labelled


def test_rule_of_two_streams_by_hand():
    """One signal, d: 1/2 with gain 0.3 on 20 images, 1 with −0.1 on 10, so 10 disagreements each. With a ridge of 1
    towards 0.2, w = (20 · 0.3 + 10 · (−0.1) + 0.2) / (10 + 10 + 1) = 5.2 / 21 = 0.24762.
    """
    sums = Sums(torch.tensor([[20 * 0.5 + 10 * 1.0]]), torch.tensor([20 * 0.3 - 10 * 0.1]))
    torch.testing.assert_close(solved(sums, 1.0, torch.tensor([0.2])), torch.tensor([5.2 / 21]))


class Once(Adapter):
    """Says the next class for the second half of a batch."""

    def predict(self, x):
        logits = super().predict(x)
        return torch.cat([logits[: len(x) // 2], logits[len(x) // 2 :].roll(1, -1)])


def test_sums_weigh_every_disagreement_alike():
    """Two batches of 20 without a shift of classes, half of each differing: 20 disagreements, all of them lost."""
    model = nn.Linear(3, 3)
    model.weight.data, model.bias.data = torch.eye(3), torch.zeros(3)
    torch.manual_seed(0)
    sums = Guard(AdapterRecipe(Once), segments=1, batches=2, window=1e9)._play(
        Once(model), torch.eye(3).repeat(30, 1), torch.arange(90) % 3, 3
    )
    assert sums.squares[0, 0] == pytest.approx(20.0)
    assert sums.gains[0] == pytest.approx(-20.0)


class Wrong(Adapter):
    """Says the next class."""

    def predict(self, x):
        return super().predict(x).roll(1, -1)


def test_rule_says_that_an_adapter_that_is_always_wrong_does_harm():
    people, known = battery.population(), battery.trained()
    from acclimate import params
    from acclimate.harm import Signals

    model = params.load(battery.build()(), known.of(None)["model"]).eval()
    held = people.examples(people.source[0][0])
    x, y = held.x, model(held.x).argmax(-1)  # so that the model is right
    torch.manual_seed(0)
    phase = Guard(AdapterRecipe(Wrong), segments=3, batches=2)
    rule = phase.export(phase._play(Wrong(model), x, y, 10), None, 0)["rule"]
    seen = Signals(80.0)
    seen.add(model(x), Wrong(model).predict(x), 0.0)
    assert float(rule @ seen.features()) < -0.3


def test_calibration_without_an_adapter_leaves_the_default():
    outcome = battery.run_algorithm(Guard(), known=battery.trained(), position=1, seed=5)
    torch.testing.assert_close(
        outcome.algorithm.export(outcome.server, None, 0)["rule"], torch.tensor(RULE, dtype=torch.float64)
    )


def test_calibrate_and_wrap_with_a_guard():
    model, batch = cnn(), images()
    knowledge = ac.calibrate(model, "bbse", labelled(batch), guard=True, segments=2, batches=2)
    assert set(knowledge) == {"confusion", "rule"}
    adapted = ac.wrap(model, "bbse", guard={"every": 2}, **knowledge)
    assert adapted(batch).isfinite().all()
    assert torch.equal(adapted.adapter.rule, knowledge["rule"])
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
