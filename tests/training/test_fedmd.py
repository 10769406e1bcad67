import math
from dataclasses import replace

import pytest
import torch

import toys
from acclimate import params
from acclimate.contracts import Newcomer
from acclimate.errors import ConfigError
from acclimate.examples import Unlabelled
from acclimate.models.build import Build
from acclimate.sgd import Group, LocalSGD, cross_entropy, trainable
from acclimate.training.fedavg import FedAvg, Global
from acclimate.training.fedmd import Consensus, FedMD, divergence

BUILD = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))
LOOP = LocalSGD(lr=0.1, batch_size=8, steps=3)


class Public:
    """Stands in for `Unlabelled`: any floats as images."""

    def __init__(self, x):
        self.x = torch.as_tensor(x).view(-1, 1, 1, 1)

    def __len__(self):
        return len(self.x)

    def batches(self, size):
        return iter(self.x.split(size))


def with_public(one, public):
    return replace(one, task=replace(one.task, public=public))


def people(build=BUILD, number=2):
    public = Unlabelled(toys.examples(10, seed=9).images, torch.arange(10))
    return [with_public(toys.client(toys.examples(23, seed=k), build, id=k, classes=3), public) for k in range(number)]


def test_fedmd_digests_the_consensus_by_hand():
    """Public image x = 1, w = 0, consensus logits (ln 3, 0): p = (¾, ¼) against (½, ½), so the gradient is (−¼, ¼).

    One step of rate 1: w = (¼, −¼). A new client takes two such steps; the second from p₀ = σ(½): ¼ + ¾ − σ(½).
    """
    algorithm = FedMD(LocalSGD(lr=1.0, steps=1))
    one = with_public(toys.client(toys.Fixed([0.0], [0])), Public([1.0]))  # its own image has no gradient
    server = Consensus({"base": torch.tensor([[math.log(3.0), 0.0]])}, 1)
    reply, w = algorithm.client_update(server, one.start(), one)
    assert w["1.weight"].flatten().tolist() == pytest.approx([0.25, -0.25])
    assert reply.update["base"].flatten().tolist() == pytest.approx([0.25, -0.25])
    second = 1.0 - 1 / (1 + math.exp(-0.5))
    new = algorithm.welcome(server, Newcomer(5, torch.zeros(1, 1, 1, 1), one.task, one.net))
    assert new["1.weight"].flatten().tolist() == pytest.approx([second, -second])


def test_fedmd_divergence_is_of_the_teacher():
    """KL((¾, ¼) ‖ (½, ½)) = ¾ ln 1.5 + ¼ ln ½."""
    found = divergence(torch.tensor([[math.log(3.0), 0.0]]), torch.zeros(1, 2))
    assert found.item() == pytest.approx(0.75 * math.log(1.5) + 0.25 * math.log(0.5), abs=1e-6)


def test_fedmd_in_its_first_round_trains_as_everybody_alone_and_averages_logits():
    one, other = people()
    played = toys.play(FedMD(LOOP), [one, other])
    start = one.start()
    again = FedMD(LOOP).client_update(Consensus({}, 0), start, people()[0])[1]
    plain = FedAvg(LOOP).client_update(Global(start, 0), None, people()[0])[0].update
    assert all(torch.equal(again[name], tensor) for name, tensor in plain.items())
    mean = (played.replies[0].update["base"] + played.replies[1].update["base"]) / 2
    torch.testing.assert_close(played.server.logits["base"], mean)
    assert played.server.logits["base"].shape == (10, 3)


def test_fedmd_without_public_images_says_what_to_do():
    one = toys.client(toys.examples(8), BUILD, classes=3)
    with pytest.raises(ConfigError, match=r"public: 0\.1"):
        FedMD().client_update(Consensus({}, 0), one.start(), one)


def test_fedmd_momentum_goes_on_from_public_images_to_own():
    """Two fits of one step with a velocity in common are one fit of two steps; without it the second starts anew."""
    one = toys.client(toys.examples(8), BUILD, classes=3)
    start, loop = one.start(), LocalSGD(lr=0.1, batch_size=8, momentum=0.9, steps=1)

    def after(loops, velocity):
        net = one.net(start).eval()
        group = Group(trainable(net), cross_entropy(net), velocity=velocity)
        for loop in loops:
            loop.fit([group], one.train, None)
        return params.of(net)["head.weight"]

    twice = after([replace(loop, steps=2)], None)
    assert torch.equal(after([loop, loop], {}), twice)
    assert not torch.equal(after([loop, loop], None), twice)
