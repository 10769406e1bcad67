import pytest
import torch

import toys
from acclimate.models.build import Build
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import FedAvg, Global
from acclimate.training.fedgma import FedGMA

BUILD = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))
START = Global({"1.weight": torch.zeros(2, 1)}, 0)


def test_fedgma_follows_less_where_clients_disagree():
    """w = 0, x = 1, lr 1, one step: three clients of class 0 send (½, −½), one of class 1 (−½, ½), one image each.

    Mean update (¼, −¼); the signs agree to |3 − 1| / 4 = ½. Below the threshold 0.6 the update counts by half: ⅛; with
    the threshold at ½ it counts whole. η_g = 2 doubles it.
    """
    clients = [toys.client(toys.Fixed([1.0], [y]), id=k) for k, y in enumerate((0, 0, 0, 1))]
    for threshold, lr, expected in ((0.6, 1.0, 0.125), (0.5, 1.0, 0.25), (0.6, 2.0, 0.25)):
        played = toys.play(FedGMA(LocalSGD(lr=1.0), lr=lr, threshold=threshold), clients, START)
        assert played.server.w["1.weight"].flatten().tolist() == pytest.approx([expected, -expected])


def test_fedgma_counts_clients_alike_in_signs_and_by_examples_in_the_mean():
    """Client 0 has three images of class 0, client 1 one of class 1: mean (¾ − ¼) / 2 = ¼, agreement 0."""
    clients = [toys.client(toys.Fixed([1.0] * 3, [0] * 3), id=0), toys.client(toys.Fixed([1.0], [1]), id=1)]
    played = toys.play(FedGMA(LocalSGD(lr=1.0), threshold=0.1), clients, START)
    assert played.server.w["1.weight"].flatten().tolist() == [0.0, 0.0]
    played = toys.play(FedGMA(LocalSGD(lr=1.0), threshold=0.0), clients, START)
    assert played.server.w["1.weight"].flatten().tolist() == pytest.approx([0.25, -0.25])


def test_fedgma_with_threshold_zero_equals_fedavg():
    w = FedAvg().init(toys.client(toys.examples(2), BUILD).task)
    rounds = []
    for algorithm in (FedAvg(), FedGMA(threshold=0.0), FedGMA(threshold=1.0)):
        clients = [toys.client(toys.examples(23 + 8 * k, seed=k), BUILD, id=k) for k in range(3)]
        rounds.append(toys.play(algorithm, clients, w).server.w)
    for name, tensor in rounds[0].items():
        torch.testing.assert_close(rounds[1][name], tensor)
    assert not torch.equal(rounds[0]["head.weight"], rounds[2]["head.weight"])
