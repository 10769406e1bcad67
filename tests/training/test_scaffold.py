import math

import pytest
import torch

import toys
from acclimate.contracts import Replies, Reply
from acclimate.models.build import Build
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import FedAvg, Global
from acclimate.training.scaffold import Scaffold, State


def pair(first: float) -> dict[str, torch.Tensor]:
    return {"1.weight": torch.tensor([[first], [-first]])}


def test_scaffold_corrects_the_gradient_by_both_controls():
    """x = 1, y = 0, w = 0, one step with lr 1: gradient (−½, ½); c = (1, −1), c_i = (¼, −¼).

    y = 0 − (−½ + 1 − ¼) = −¼, and c_i⁺ = c_i − c + (x − y) / (K η) = ¼ − 1 + ¼ = −½, the gradient itself.
    """
    one = toys.client(toys.Fixed([1.0], [0]))
    reply, c_i = Scaffold(LocalSGD(lr=1.0)).client_update(State(pair(0.0), pair(1.0), 1, 0), pair(0.25), one)
    y, delta = reply.update
    assert y["1.weight"].flatten().tolist() == [-0.25, 0.25]
    assert c_i["1.weight"].flatten().tolist() == [-0.5, 0.5]
    assert delta["1.weight"].flatten().tolist() == [-0.75, 0.75]


def test_scaffold_control_is_the_mean_gradient():
    """x = 1, y = 0, from w = 0: gradients −½, then σ(1) − 1 at w = (½, −½). Lr 1, no corrections yet."""
    one = toys.client(toys.Fixed([1.0], [0]))
    result = toys.play(Scaffold(LocalSGD(lr=1.0, epochs=2)), [one])
    expected = (-0.5 + 1 / (1 + math.exp(-1)) - 1) / 2
    assert result.states[0]["1.weight"].flatten().tolist() == pytest.approx([expected, -expected], abs=1e-6)
    assert result.server.c["1.weight"][0].item() == pytest.approx(expected, abs=1e-6)  # |S| = N = 1


def test_scaffold_server_averages_without_weights_and_scales_the_control():
    """N = 4, |S| = 2, η_g = ½: x = 1 + ½ · (mean(2, 4) − 1) = 2, c = 1 + 2/4 · mean(1, 3) = 2."""
    replies = Replies()
    for k, (y, delta) in enumerate([(2.0, 1.0), (4.0, 3.0)]):
        replies.add(k, Reply(({"w": torch.tensor(y)}, {"w": torch.tensor(delta)})))
    before = State({"w": torch.tensor(1.0)}, {"w": torch.tensor(1.0)}, 4, 0)
    after = Scaffold(lr=0.5).server_update(before, replies)
    assert (after.x["w"].item(), after.c["w"].item(), after.clients) == (2.0, 2.0, 4)


def test_scaffold_ignores_how_many_examples_a_client_has():
    """Steps from w = 0 as in FedAvg's test: (½, −½) and (−1, 1); their plain mean is (−¼, ¼)."""
    first = toys.client(toys.Fixed([1.0], [0]), id=0, source=(0, 1))
    second = toys.client(toys.Fixed([2.0, 2.0, 2.0], [1, 1, 1]), id=1, source=(0, 1))
    server = toys.play(Scaffold(LocalSGD(lr=1.0)), [first, second]).server
    assert server.x["1.weight"].flatten().tolist() == [-0.25, 0.25]
    assert server.clients == 2


def test_scaffold_first_round_of_one_client_equals_fedavg():
    build = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))
    local = LocalSGD(lr=0.1, epochs=2)
    start = Scaffold(local).init(toys.client(toys.examples(2), build).task)
    ours = toys.play(Scaffold(local), [toys.client(toys.examples(30), build)], start)
    plain = toys.play(FedAvg(local), [toys.client(toys.examples(30), build)], Global(start.x, 0))
    for name, tensor in plain.server.w.items():  # x + (y − x) is y up to rounding
        torch.testing.assert_close(ours.server.x[name], tensor, rtol=0, atol=1e-6)
    for name, tensor in plain.replies[0].update.items():  # the client itself agrees to the bit
        assert torch.equal(ours.replies[0].update[0][name], tensor)


def test_scaffold_averages_batch_statistics_as_they_are():
    one = toys.client(toys.Fixed([0.0, 2.0], [0, 1]), toys.normed)
    server, states, replies = toys.play(Scaffold(lr=0.5), [one])
    for name in ("1.running_mean", "1.running_var", "1.num_batches_tracked"):
        assert torch.equal(server.x[name], replies[0].update[0][name])
    assert set(states[0]) == set(server.c) == {"1.weight", "1.bias", "2.weight"}
