from dataclasses import replace

import pytest
import torch

import toys
from acclimate import params
from acclimate.contracts import Newcomer, Replies
from acclimate.models.build import Build
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import FedAvg, Global
from acclimate.training.odpfl_hn import ODPFLHN, Nets

BUILD = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))
SMALL = ODPFLHN(LocalSGD(lr=0.5, steps=2, batch_size=8), hidden=4, embedding=3)


def people():
    both = [toys.client(toys.examples(23, seed=k), BUILD, id=k, classes=3) for k in range(2)]
    return [replace(one, task=replace(one.task, shape=(1, 8, 8), source=(0, 1))) for one in both]


def started():
    torch.manual_seed(0)
    return SMALL.init(people()[0].task)


def test_odpfl_hn_starts_everybody_at_the_same_model():
    server = started()
    nets = params.load(Nets((1, 8, 8), 3, 4), server.nets)
    for one in people():
        made = SMALL.export(server, nets(one.train.x).detach(), one.id)["model"]
        assert all(torch.equal(made[name], {**server.bias, **server.statistics}[name]) for name in made)


def test_odpfl_hn_moves_the_bias_as_the_server_moves_fedavg():
    """At the start θ is the bias, so with a rate of 1 the bias goes to the mean of the clients' models."""
    server = started()
    whole = {**server.bias, **server.statistics}
    after = toys.play(ODPFLHN(SMALL.local, hidden=4, embedding=3, hyper_lr=1.0), people(), server).server
    plain = toys.play(FedAvg(SMALL.local), people(), Global(whole, 0)).server.w
    for name, tensor in {**after.bias, **after.statistics}.items():
        torch.testing.assert_close(tensor, plain[name])


def test_odpfl_hn_gradients_are_those_of_the_whole_hypernetwork():
    """By autograd through θ = b + L h(x): the gradient of ⟨θ, Δθ⟩, Δθ held fixed, for every network."""
    server = started()
    server = server._replace(last=torch.randn(server.last.shape) * 0.1)
    one = people()[0]
    reply, hidden = SMALL.client_update(server, torch.zeros(4), one)
    nets, last = params.load(Nets((1, 8, 8), 3, 4), server.nets), server.last.clone().requires_grad_()
    delta = torch.cat([tensor.flatten() for tensor in reply.update.delta.values()])
    inner = (last @ nets(one.train.x) * delta).sum()
    expected = params.gradients(inner, {**dict(nets.named_parameters()), "last": last})
    for name, tensor in reply.update.nets.items():
        torch.testing.assert_close(tensor, expected[name])
    replies = Replies(keeps=True)
    replies.add(0, reply)
    moved = SMALL.server_update(server, replies)
    torch.testing.assert_close(moved.last, server.last - 0.5 * expected["last"])
    assert torch.equal(hidden, reply.update.hidden)


def test_odpfl_hn_clips_the_gradient_of_all_networks_together():
    """Both rates are 0.5, so all networks together move by 0.5 · 0.01 where the gradient is longer than 0.01."""
    server = started()._replace(last=torch.randn(started().last.shape))
    replies = Replies(keeps=True)
    for one in people():
        replies.add(one.id, SMALL.client_update(server, torch.zeros(4), one)[0])
    after = replace(SMALL, clip=0.01).server_update(server, replies)
    moved = [after.last - server.last]
    for now, then in ((after.nets, server.nets), (after.bias, server.bias)):
        moved += [now[name] - tensor for name, tensor in then.items()]
    length = torch.cat([one.flatten() for one in moved]).norm()
    assert float(length) == pytest.approx(0.5 * 0.01, rel=1e-3)


def test_odpfl_hn_welcomes_by_images_alone():
    server = started()._replace(last=torch.ones_like(started().last))
    one, other = people()
    newcomer = Newcomer(7, one.train.x, one.task, one.net)
    hidden = SMALL.welcome(server, newcomer)
    model = SMALL.export(server, hidden, 7)["model"]
    assert model["head.bias"].tolist() == pytest.approx((server.bias["head.bias"] + hidden.sum()).tolist())
    assert not torch.equal(hidden, SMALL.welcome(server, Newcomer(8, other.train.x, one.task, one.net)))
    assert SMALL.export(server, None, 9) == {}
