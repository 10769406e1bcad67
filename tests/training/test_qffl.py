import math

import pytest
import torch

import toys
from acclimate.models.build import Build
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import FedAvg, Global
from acclimate.training.qffl import QFFL, mean_loss

BUILD = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))


def pair(weight):
    return {"1.weight": torch.tensor([[weight], [-weight]])}


@pytest.mark.parametrize("q", [0.5, 1.0, 2.0])
def test_qffl_weighs_updates_by_powers_of_the_loss(q):
    """Logits ±w x with w = 1; client 0: x = 1 of class 0, client 1: x = 1 of class 1. L = 1 / lr = 4.

    F₀ = −ln σ(2), F₁ = −ln σ(−2) = 2 + F₀. Gradients for the first weight: −(1 − σ(2)) and σ(2), for the second the
    opposite; with one step Δw_k is the gradient itself, ‖Δw_k‖² = 2 g_k².
    w − (F₀^q g₀ + F₁^q g₁) / Σ (q F_k^(q−1) 2 g_k² + 4 F_k^q).
    """
    clients = [toys.client(toys.Fixed([1.0], [k]), id=k) for k in range(2)]
    server = toys.play(QFFL(LocalSGD(lr=0.25), q=q), clients, Global(pair(1.0), 0)).server
    p = 1 / (1 + math.exp(-2))
    f, g = (-math.log(p), -math.log(1 - p)), (-(1 - p), p)
    delta = sum(f[k] ** q * g[k] for k in range(2))
    h = sum(q * f[k] ** (q - 1) * 2 * g[k] ** 2 + 4 * f[k] ** q for k in range(2))
    assert server.w["1.weight"].flatten().tolist() == pytest.approx([1 - delta / h, -1 + delta / h], abs=1e-6)


def test_qffl_with_q_zero_is_the_unweighted_mean_of_the_clients_models():
    local = LocalSGD(lr=0.3, epochs=2)
    clients = [[toys.client(toys.examples(20, seed=k), BUILD, id=k) for k in range(3)] for _ in range(2)]
    w = FedAvg().init(clients[0][0].task)
    fair, plain = (
        toys.play(QFFL(local, q=0.0), clients[0], w).server.w,
        toys.play(FedAvg(local), clients[1], w).server.w,
    )
    assert list(fair) == list(plain)
    for name, tensor in plain.items():  # equal numbers of examples, so FedAvg's mean is unweighted too
        torch.testing.assert_close(fair[name], tensor, rtol=1e-5, atol=1e-6)


def test_qffl_with_q_zero_ignores_how_many_examples_a_client_has():
    """Steps from w = 0 with lr 1: (½, −½) and (−1, 1), as in SCAFFOLD's test; their plain mean is (−¼, ¼)."""
    clients = [toys.client(toys.Fixed([1.0], [0])), toys.client(toys.Fixed([2.0, 2.0, 2.0], [1, 1, 1]), id=1)]
    server = toys.play(QFFL(LocalSGD(lr=1.0), q=0.0), clients).server
    assert server.w["1.weight"].flatten().tolist() == pytest.approx([-0.25, 0.25], abs=1e-6)


def test_qffl_leans_to_the_client_that_is_worse_off():
    """Client 0 has F₀ = −ln σ(4) = 0.018, client 1, wrong about its image, F₁ = 4 + F₀: 221 times as much.

    With q = 1 its update counts that much more, relative to the other's, than with q = 0.
    """
    clients = [toys.client(toys.Fixed([1.0], [k]), id=k) for k in range(2)]
    pulls = [toys.play(QFFL(LocalSGD(lr=0.25), q=q), clients, Global(pair(2.0), 0)).replies for q in (0.0, 1.0)]
    ratios = [r[1].update.delta["1.weight"].norm() / r[0].update.delta["1.weight"].norm() for r in pulls]
    losses = [r.metrics["loss"] for r in pulls[0].values()]
    assert ratios[1] == pytest.approx(ratios[0].item() * losses[1] / losses[0], rel=1e-4)
    assert losses[1] / losses[0] > 200


def test_qffl_takes_the_loss_before_training_and_leaves_statistics_to_averaging():
    one = toys.client(toys.examples(12), BUILD)
    w = QFFL().init(one.task)
    before = mean_loss(one.net(w.w), one.train)
    server, _, replies = toys.play(QFFL(), [one], w)
    assert replies[0].metrics["loss"] == pytest.approx(before)
    for name in ("bn.running_mean", "bn.running_var", "bn.num_batches_tracked"):
        assert torch.equal(server.w[name], replies[0].update.statistics[name])
    assert server.w["bn.num_batches_tracked"].item() == 1


def test_qffl_without_any_loss_does_not_divide_by_zero():
    """x = 100 is classified perfectly: F = 0, and its power q − 1 would be infinite."""
    one = toys.client(toys.Fixed([100.0], [0]))
    server = toys.play(QFFL(q=0.5), [one], Global(pair(1.0), 0)).server
    assert server.w["1.weight"].isfinite().all()
