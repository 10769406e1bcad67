from dataclasses import replace

import pytest
import torch
from torch import nn

import battery
import toys
from acclimate import trees
from acclimate.data.augment import Crops
from acclimate.engine.known import Known
from acclimate.sgd import LocalSGD
from acclimate.training.btfl import BTFL
from acclimate.training.fedavg import FedAvg

TWO = toys.Fixed([1.0, 2.0], [0, 1])


def dropping(client=None):
    """A model that draws at random while it trains."""
    return nn.Sequential(nn.Flatten(), nn.Linear(324, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 10))


@pytest.mark.parametrize("make", [None, dropping])
@pytest.mark.parametrize("options", [{}, {"head": "global", "head_epochs": 3}])
def test_btfl_model_is_fedavgs_to_the_bit(make, options):
    local = LocalSGD(lr=0.05, epochs=2, batch_size=7, weight_decay=5e-4)
    ours, theirs = (
        battery.run_algorithm(algorithm, rounds=3, cohort=3, seed=5, make=make)
        for algorithm in (BTFL(local, **options), FedAvg(local))
    )
    assert trees.dump(Known([ours]).of(None)["model"]) == trees.dump(Known([theirs]).of(None)["model"])


def test_btfl_and_fedavg_train_on_the_same_moved_images():
    local, still = LocalSGD(lr=0.05, epochs=2, batch_size=7), battery.population()
    ours, theirs, others = (
        Known([battery.run_algorithm(algorithm, rounds=2, seed=5, people=people)]).of(None)["model"]
        for algorithm, people in (
            (BTFL(local), replace(still, augment=Crops(margin=2))),
            (FedAvg(local), replace(still, augment=Crops(margin=2))),
            (FedAvg(local), still),
        )
    )
    assert trees.dump(ours) == trees.dump(theirs) != trees.dump(others)


def test_btfl_personal_head_by_hand():
    """Body 1, so the features are x = 1 and 2, of classes 0 and 1; w_p = 0 and lr = 1, both in one batch.

    p = (½, ½): the gradient of row 0 is ½ (−½ · 1 + ½ · 2) = ¼, of row 1 it is −¼: w_p = (−¼, ¼). What the shared model
    learns in the same round does not show.
    """
    one = toys.client(TWO, toys.two_layers)
    algorithm = BTFL(LocalSGD(lr=1.0))
    played = toys.play(algorithm, [one], states={0: torch.zeros(2, 1)})
    torch.testing.assert_close(played.states[0], torch.tensor([[-0.25], [0.25]]))
    assert played.server.w["1.weight"] != 1


def test_btfl_head_may_start_from_the_one_that_was_sent():
    """The head (1, −1) was sent; a rate this small leaves it there, whatever the client had before."""
    one = toys.client(TWO, toys.two_layers)
    played = toys.play(BTFL(LocalSGD(lr=1e-9), head="global"), [one], states={0: torch.full((2, 1), 7.0)})
    torch.testing.assert_close(played.states[0], torch.tensor([[1.0], [-1.0]]))


def test_btfl_head_goes_on_where_it_was():
    one, algorithm = toys.client(TWO, toys.two_layers), BTFL(LocalSGD(lr=0.1))
    first = toys.play(algorithm, [one])
    again = toys.play(algorithm, [one], first.server, first.states)
    assert not torch.equal(again.states[0], first.states[0])
    torch.testing.assert_close(again.states[0], first.states[0], rtol=0, atol=0.3)


def test_btfl_feature_penalty_by_hand():
    """Body b = 1, head 0: the loss is ln 2 + σ · mean |b x|, so the body falls by lr · σ · (1 + 2) / 2."""
    one = toys.client(
        TWO, toys.two_layers, known={"model": {"1.weight": torch.ones(1, 1), "2.weight": torch.zeros(2, 1)}}
    )
    played = toys.play(BTFL(LocalSGD(lr=1.0), l1=0.2), [one])
    torch.testing.assert_close(played.server.w["1.weight"], torch.tensor([[0.7]]))


def test_btfl_gives_a_head_only_to_those_who_trained():
    algorithm, one = BTFL(), toys.client(TWO, toys.two_layers)
    server = algorithm.init(one.task)
    assert set(algorithm.export(server, None, 7)) == {"model"}
    assert set(algorithm.export(server, torch.zeros(2, 1), 0)) == {"model", "head"}
