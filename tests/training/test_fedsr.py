import math

import pytest
import torch

import toys
from acclimate.engine.live import Extending
from acclimate.models.build import Build
from acclimate.models.extended import plain
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import FedAvg
from acclimate.training.fedsr import FedSR

BUILD = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))


def start(algorithm, build, spread):
    """The start of a phase whose representation has this spread for every image."""
    one = toys.client(toys.examples(2), Extending(build, (algorithm,)), classes=3)
    torch.manual_seed(0)
    server = algorithm.init(one.task)
    server.w["extra.spread.weight"].zero_()
    server.w["extra.spread.bias"].fill_(math.log(math.expm1(spread)))  # softplus gives it back
    return server


def test_fedsr_loss_by_hand(monkeypatch):
    """Body 1, head (1, −1), image x = 2, class 0: μ = 2, σ = ½, ε = 1, so z = 2.5 and the logits are ±2.5.

    CE = ln(1 + e⁻⁵). ℓ^L2R = 2.5². r = N(0, s) with s = softplus(1): ℓ^CMI = ln(2 s) + (¼ + 4) / (2 s²) − ½.
    """
    algorithm = FedSR(l2r=0.1, cmi=0.01)
    build = Extending(toys.two_layers, (algorithm,))
    one = toys.client(toys.Fixed([2.0], [0]), build)
    net = one.net(start(algorithm, toys.two_layers, 0.5).w)
    monkeypatch.setattr(torch, "randn_like", torch.ones_like)
    s = math.log1p(math.e)
    cmi = math.log(2 * s) + 4.25 / (2 * s * s) - 0.5
    expected = math.log1p(math.exp(-5)) + 0.1 * 6.25 + 0.01 * cmi
    assert algorithm.loss(net, {})(one.train.x, one.train.y).item() == pytest.approx(expected, abs=1e-5)


def test_fedsr_without_noise_and_regularisers_equals_fedavg():
    local = LocalSGD(batch_size=8)
    algorithm = FedSR(local, l2r=0.0, cmi=0.0)
    server = start(algorithm, BUILD, 1e-12)
    found = []
    for phase, w in ((algorithm, server), (FedAvg(local), server._replace(w=plain(server.w)))):
        build = Extending(BUILD, (phase,))
        clients = [toys.client(toys.examples(23, seed=k), build, id=k, classes=3) for k in range(2)]
        found.append(toys.play(phase, clients, w).server.w)
    for name, tensor in found[1].items():
        torch.testing.assert_close(found[0][name], tensor, rtol=1e-4, atol=1e-5)


def test_fedsr_exports_a_plain_model():
    algorithm = FedSR()
    exported = algorithm.export(start(algorithm, BUILD, 1.0), None, 0)["model"]
    assert exported.keys() == BUILD(None).state_dict().keys()
