import torch
from torch import nn

import battery
from acclimate.adapters.ttt import TTT
from acclimate.models.rotation import rotation_loss, rotations
from acclimate.params import load, of


def made(**options):
    known = battery.knowing("ttt").of(0)
    return TTT(load(battery.build()(), known["model"]), rotation=known["rotation"], **options)


def images(count=4):
    return battery.population().examples(battery.population().streams[0].segments[0][1]).x[:count]


def test_rotations_are_quarter_turns():
    x = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
    turned, labels = rotations(x)
    assert labels.tolist() == [0, 1, 2, 3]
    assert [t.flatten().tolist() for t in turned] == [[1, 2, 3, 4], [2, 4, 1, 3], [4, 3, 2, 1], [3, 1, 4, 2]]


def test_ttt_step_by_hand():
    """Body b = 1 (one pixel: all turns look alike), rotation head (1, 0, 0, 0), x = 2: p = e²/(e² + 3) for turn 0.

    The mean loss is ln(e^{2b} + 3) − 2b/4, its slope in b 2 p − ½; lr 0.1. The head of classes stays.
    """
    net = nn.Sequential(nn.Flatten(), nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False))
    net = load(net, {"1.weight": torch.ones(1, 1), "2.weight": torch.tensor([[1.0], [-1.0]])})
    rotation = {"weight": torch.tensor([[1.0], [0.0], [0.0], [0.0]]), "bias": torch.zeros(4)}
    one = TTT(net, rotation=rotation, lr=0.1)
    one(torch.full((1, 1, 1, 1), 2.0))
    e2 = torch.tensor(2.0).exp()
    torch.testing.assert_close(of(net)["1.weight"].item(), (1 - 0.1 * (2 * e2 / (e2 + 3) - 0.5)).item())
    assert of(net)["2.weight"].flatten().tolist() == [1, -1]


def test_ttt_learns_rotations_and_carries_over():
    one, x = made(lr=0.05, steps=5), images()
    before = rotation_loss(one.net, one.turns, x)
    one(x)
    first = rotation_loss(one.net, one.turns, x)
    one(x)
    assert rotation_loss(one.net, one.turns, x) < first < before


def test_ttt_with_a_tiny_rate_is_no_adaptation():
    one, x = made(lr=1e-12), images()
    torch.testing.assert_close(one(x), made().net(x))
