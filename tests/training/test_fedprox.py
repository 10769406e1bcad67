import math

import pytest

import toys
from acclimate import trees
from acclimate.models.build import Build
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import FedAvg
from acclimate.training.fedprox import FedProx

TWO_STEPS = LocalSGD(lr=1.0, epochs=2)


def test_fedprox_pulls_the_second_step_towards_the_anchor():
    """x = 1, y = 0, lr 1, w_t = 0. First step: no pull at the anchor, w = (½, −½).

    Second step: logits ±½, p₀ = σ(1), gradient of the cross-entropy p₀ − 1, of the term μ · ½. With μ = 0.4:
    w₀ = ½ + (1 − σ(1)) − 0.2. Loss: ln 2, then −ln σ(1) + 0.4 / 2 · (¼ + ¼).
    """
    p = 1 / (1 + math.exp(-1))
    (w, _), _, replies = toys.play(FedProx(TWO_STEPS, mu=0.4), [toys.client(toys.Fixed([1.0], [0]))])
    assert w["1.weight"].flatten().tolist() == pytest.approx([1.3 - p, p - 1.3], abs=1e-6)
    assert replies[0].metrics["loss"] == pytest.approx((math.log(2) - math.log(p) + 0.1) / 2, abs=1e-6)


def test_fedprox_with_mu_zero_equals_fedavg():
    build = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))
    w = FedAvg().init(toys.client(toys.examples(2), build).task)
    rounds = []
    for algorithm in (FedAvg(TWO_STEPS), FedProx(TWO_STEPS, mu=0.0), FedProx(TWO_STEPS, mu=0.1)):
        clients = [toys.client(toys.examples(23 + k, seed=k), build, id=k) for k in range(2)]
        rounds.append(toys.play(algorithm, clients, w).server)
    assert trees.equal(rounds[0], rounds[1])
    assert not trees.equal(rounds[0], rounds[2])


def test_fedprox_with_a_large_mu_stays_nearer():
    def moved(mu):
        return toys.play(FedProx(LocalSGD(lr=0.1, epochs=9), mu=mu), [toys.client(toys.Fixed([1.0], [0]))])

    free, held = (moved(mu).server.w["1.weight"].norm().item() for mu in (0.0, 8.0))
    assert 0 < held < 0.5 * free
