import math

import pytest
import torch
from torch import nn

import toys
from acclimate import trees
from acclimate.engine.live import Extending
from acclimate.models.build import Build
from acclimate.models.extended import plain
from acclimate.sgd import LocalSGD
from acclimate.training.fedadg import FedADG
from acclimate.training.fedavg import FedAvg

BUILD = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))


def test_fedadg_losses_by_hand():
    """Body 1, head (1, −1), image x = 1 of class 0; all weights of G and D zero: D = σ(bias) for everything.

    With D = ¼: the model's loss is (1 − w) ln(1 + e⁻²) + w (1 − ¼)², the discriminator's (1 − ¼)² + (¼)², the
    generator's (¼)².
    """
    algorithm = FedADG(weight=0.2)
    one = toys.client(toys.Fixed([1.0], [0]), Extending(toys.two_layers, (algorithm,)))
    net = one.net(one.start())
    for tensor in net.extra.parameters():
        nn.init.zeros_(tensor)
    nn.init.constant_(net.extra["discriminator"][2].bias, -math.log(3))
    model, discriminator, generator = (g.loss(one.train.x, one.train.y).item() for g in algorithm.groups(net))
    assert model == pytest.approx(0.8 * math.log1p(math.exp(-2)) + 0.2 * 0.5625)
    assert discriminator == pytest.approx(0.5625 + 0.0625)
    assert generator == pytest.approx(0.0625)


def test_fedadg_steps_each_part_down_its_own_loss():
    algorithm = FedADG()
    one = toys.client(toys.examples(8), Extending(BUILD, (algorithm,)), classes=3)
    net = one.net(one.start())
    names = [set(group.tensors) for group in algorithm.groups(net)]
    assert names[1] == {n for n, _ in net.named_parameters() if n.startswith("extra.discriminator")}
    assert names[2] == {n for n, _ in net.named_parameters() if n.startswith("extra.generator")}
    assert set.union(*names) == {n for n, _ in net.named_parameters()}
    assert not names[0] & (names[1] | names[2])


def test_fedadg_without_the_adversarial_loss_trains_the_model_as_fedavg():
    local, algorithm = LocalSGD(batch_size=8), FedADG(LocalSGD(batch_size=8), weight=0.0)
    torch.manual_seed(0)
    server = algorithm.init(toys.client(toys.examples(2), Extending(BUILD, (algorithm,)), classes=3).task)
    found = []
    for phase, w in ((algorithm, server), (FedAvg(local), server._replace(w=plain(server.w)))):
        build = Extending(BUILD, (phase,))
        clients = [toys.client(toys.examples(23, seed=k), build, id=k, classes=3) for k in range(2)]
        found.append(toys.play(phase, clients, w).server.w)
    for name, tensor in found[1].items():
        if "running" not in name and "tracked" not in name:  # the discriminator's pass moves batch statistics too
            torch.testing.assert_close(found[0][name], tensor)
    changed = {name: tensor for name, tensor in found[0].items() if name.startswith("extra.")}
    assert not trees.equal(changed, {name: server.w[name] for name in changed})
