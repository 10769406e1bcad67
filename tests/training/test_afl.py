import math

import pytest
import torch

import toys
from acclimate import trees
from acclimate.contracts import Replies
from acclimate.models.build import Build
from acclimate.sgd import LocalSGD
from acclimate.training.afl import AFL, State
from acclimate.training.fedavg import FedAvg, Global

BUILD = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))
ONE_STEP = LocalSGD(lr=1.0)


def two(labels=(0, 0)):
    """Two clients with the image x = 1."""
    return [toys.client(toys.Fixed([1.0], [y]), id=k, source=(0, 1)) for k, y in enumerate(labels)]


def test_afl_gives_weight_to_the_worse_client():
    """w = (1, −1), image x = 1: client 0 (class 0) has the loss −ln σ(2), client 1 (class 1) −ln σ(−2), 2 more.

    λ = (½, ½) + 0.1 · losses, projected on the simplex: the difference of 0.2 stays, so λ = (0.4, 0.6).
    """
    start = State(Global({"1.weight": torch.tensor([[1.0], [-1.0]])}, 0), {0: 0.5, 1: 0.5})
    played = toys.play(AFL(ONE_STEP, weights_lr=0.1), two((0, 1)), start)
    assert list(played.server.weights.values()) == pytest.approx([0.4, 0.6])
    assert played.replies[1].metrics["loss"] == pytest.approx(math.log1p(math.exp(2)), abs=1e-6)


def test_afl_averages_by_its_weights_and_zero_is_one():
    """Each client takes one step from w = 0: ±½. With λ = (0, 1) only the second's model is left."""
    start = State(Global({"1.weight": torch.zeros(2, 1)}, 0), {0: 0.0, 1: 1.0})
    played = toys.play(AFL(ONE_STEP, weights_lr=0.0), two((0, 1)), start)
    assert played.server.sent.w["1.weight"].flatten().tolist() == pytest.approx([-0.5, 0.5])
    assert played.replies[0].weight == 0.0
    replies = Replies()
    for id, reply in played.replies.items():
        replies.add(id, reply)
    assert (replies.left_out, len(replies)) == ([], 2)


def test_afl_without_a_step_of_the_weights_equals_fedavg_with_equal_clients():
    w = FedAvg().init(toys.client(toys.examples(2), BUILD).task).w
    clients = [toys.client(toys.examples(24, seed=k), BUILD, id=k, source=(0, 1)) for k in range(2)]
    agnostic = toys.play(AFL(weights_lr=0.0), clients, State(Global(w, 0), {0: 0.5, 1: 0.5})).server.sent
    clients = [toys.client(toys.examples(24, seed=k), BUILD, id=k, source=(0, 1)) for k in range(2)]
    assert trees.equal(agnostic, toys.play(FedAvg(), clients, Global(w, 0)).server)


@pytest.mark.parametrize("metrics", [{}, {"loss": 1e38}, {"loss": -1e38}])
def test_afl_goes_on_where_a_client_lies_about_its_loss(metrics):
    start = State(Global({"1.weight": torch.zeros(2, 1)}, 0), {0: 0.5, 1: 0.5})
    replies = Replies()
    for id, reply in toys.play(AFL(ONE_STEP), two(), start).replies.items():
        replies.add(id, reply._replace(metrics=metrics) if id else reply)
    weights = AFL(ONE_STEP).server_update(start, replies).weights.values()
    assert sum(weights) == pytest.approx(1.0) and min(weights) >= 0
