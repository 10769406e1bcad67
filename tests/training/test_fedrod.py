"""FedRoD's two heads, by hand."""

import torch

import toys
from acclimate.engine.live import Extending
from acclimate.models.extended import Extended
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import FedAvg
from acclimate.training.fedrod import FedRoD

THREE = toys.Fixed([1.0, 1.0, 1.0], [0, 0, 1])
FEDROD = FedRoD(local=LocalSGD(lr=1.0))


def client(examples=THREE, build=toys.logistic, id=0):
    return toys.client(examples, Extending(build, (FEDROD,)), id=id)


def test_fedrod_balances_the_generic_head_and_not_the_personal_one():
    """x = 1 throughout, labels 0, 0, 1, both heads at zero: logits 0, prior log (2, 1).

    Generic: balanced softmax gives p = (2/3, 1/3), just the shares, so its mean gradient p − ȳ is zero and it stays.
    Personal: plain softmax gives (1/2, 1/2), ȳ = (2/3, 1/3), so its gradient is (−1/6, 1/6), and lr 1 takes it to
    (1/6, −1/6).
    """
    played = toys.play(FEDROD, [client()])
    torch.testing.assert_close(played.server.w["1.weight"], torch.zeros(2, 1), rtol=0, atol=1e-6)
    own = played.states[0]["extra.1.weight"]
    torch.testing.assert_close(own, torch.tensor([[1 / 6], [-1 / 6]]), rtol=0, atol=1e-6)
    given = FEDROD.export(played.server, played.states[0], 0)["model"]
    torch.testing.assert_close(given["1.weight"], own)
    assert FEDROD.export(played.server, None, 7)["model"].keys() == {"1.weight"}


def test_fedrod_of_equal_classes_trains_fedavgs_model():
    """With as many examples of each class the prior is a constant, and the personal head sends nothing back."""
    even = toys.Fixed([0.3, -1.2, 2.0, 0.7], [0, 1, 0, 1])
    ours = toys.play(FEDROD, [client(even, toys.two_layers)]).server.w
    theirs = toys.play(FedAvg(local=LocalSGD(lr=1.0)), [toys.client(even, toys.two_layers)]).server.w
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor)


def test_fedrod_personal_model_is_the_sum_of_both_heads():
    played = toys.play(FEDROD, [client(build=toys.two_layers)])
    net = client(build=toys.two_layers).net({**played.server.w, **played.states[0]})
    assert isinstance(net, Extended)
    x = torch.tensor([0.4, -1.0]).view(-1, 1, 1, 1)
    z = x.flatten(1) @ played.server.w["1.weight"].T
    personal = net(x) + net.extra["2"](z)
    plain = toys.two_layers()
    plain.load_state_dict(FEDROD.export(played.server, played.states[0], 0)["model"])
    torch.testing.assert_close(plain(x), personal)
