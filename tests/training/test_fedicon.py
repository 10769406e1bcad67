"""FedICON's training: what is trained, what is averaged and what is left alone."""

import numpy as np
import pytest
import torch

import toys
from acclimate import params, trees
from acclimate.contracts import Reply
from acclimate.contrast import Contrastive
from acclimate.engine.live import Extending
from acclimate.replies import Replies
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import Global
from acclimate.training.fedicon import FedICON

SGD = LocalSGD(lr=0.5, batch_size=20)


def same(x):
    return x


def play(algorithm, labels=(0, 0, 1, 1), count=4):
    data = toys.examples(count)
    data = type(data)(data.images, torch.tensor(labels), data.rows)
    torch.manual_seed(0)
    net = toys.SmallNet(3, (1, 8, 8), torch.nn.Identity())
    build = lambda id: params.load(toys.SmallNet(3, (1, 8, 8), torch.nn.Identity()), params.of(net))  # noqa: E731
    client = toys.client(data, Extending(build, (algorithm,)))
    return params.of(net), algorithm, toys.play(algorithm, [client])


def test_fedicon_step_goes_down_the_supervised_contrast_and_leaves_the_head():
    before, _, played = play(FedICON(local=SGD, contrast=Contrastive(views=same)))
    after = played.server.w
    assert torch.equal(after["head.weight"], before["head.weight"])
    assert torch.equal(after["head.bias"], before["head.bias"])
    assert not torch.equal(after["conv.weight"], before["conv.weight"])


def test_fedicon_step_by_hand():
    """Encoder b = 1, raw features (1, 3) of two images of one class, equal views, τ = 1, one step at rate 0.01.

    Rows b·(1, 3, 1, 3). Anchor 1: similarities to the others 3b², b², 3b² (of rows 2, 3, 4); all belong. With
    L₁ = ln(2e^{3b²} + e^{b²}) − 7b²/3 at b = 1: ∂L₁/∂b² = (2·3e³ + e)/(2e³ + e) − 7/3 = 0.539626…; anchor 2:
    similarities 3b², 3b², 9b²: (2·3e³ + 9e⁹)/(2e³ + e⁹) − 5 = 3.970397…. Their mean times ∂b²/∂b = 2 is the gradient.
    """
    e = np.exp
    one = (2 * 3 * e(3) + e(1)) / (2 * e(3) + e(1)) - 7 / 3
    two = (2 * 3 * e(3) + 9 * e(9)) / (2 * e(3) + e(9)) - 5
    loss = Contrastive(views=same, temperature=1.0, normalise=False)
    client = toys.client(toys.Fixed([1.0, 3.0], [0, 0]), toys.two_layers)
    played = toys.play(FedICON(local=LocalSGD(lr=0.01), contrast=loss), [client])
    assert played.server.w["1.weight"].item() == pytest.approx(1 - 0.01 * (one + two), abs=1e-5)
    assert torch.equal(played.server.w["2.weight"], torch.tensor([[1.0], [-1.0]]))


def test_fedicon_without_labels_does_not_look_at_them():
    for labels in (False, True):
        algorithm = FedICON(local=SGD, labels=labels)
        one, two = (play(algorithm, given)[2].server.w for given in ((0, 0, 1, 1), (0, 1, 0, 2)))
        assert trees.equal(one, two) != labels


@pytest.mark.parametrize(("average", "key"), [("examples", "agg_fedavg"), ("clients", "agg_uniform")])
def test_fedicon_average_agrees_with_golden_vectors(average, key):
    arrays = toys.golden("fedicon/fedicon_golden.npz")
    replies = Replies()
    for id, (theta, size) in enumerate(zip(arrays["agg_theta"], arrays["agg_sizes"], strict=True)):
        weight = size if average == "examples" else 1.0
        replies.add(id, Reply({"theta": torch.from_numpy(theta)}, weight))
    after = FedICON(average=average).server_update(Global({"theta": torch.zeros(5)}, 0), replies)
    torch.testing.assert_close(after.w["theta"], torch.from_numpy(arrays[key]), **toys.TIGHT)


def test_fedicon_weighs_clients_by_examples_or_alike():
    for average, weight in (("examples", 4), ("clients", 1)):
        played = play(FedICON(local=SGD, average=average))[2]
        assert played.replies[0].weight == weight


def test_fedicon_projection_is_trained_and_thrown_away():
    before, algorithm, played = play(FedICON(local=SGD, projection=5))
    after = played.server.w
    assert after["extra.projection.2.weight"].shape == (5, 144)
    assert set(algorithm.export(played.server, None, 0)["model"]) == set(before)
