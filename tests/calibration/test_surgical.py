import pytest
import torch
from torch import nn

import toys
from acclimate import params
from acclimate.adapters.surgical import Surgical as Adapter
from acclimate.calibration.surgical import Surgical
from acclimate.models.blocks import blocks


def known(net):
    return {"model": params.of(net)}


def shifted(id=None):
    """Body b = 1 and head (1, −1) with biases (−1, 1): logits ±(b x − 1)."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(1, 1, bias=False), nn.Linear(1, 2))
    values = {"1.weight": torch.ones(1, 1), "2.weight": torch.tensor([[1.0], [-1.0]])}
    return params.load(net, {**values, "2.bias": torch.tensor([-1.0, 1.0])})


def test_surgical_counts_correct_images_after_a_step_on_each_block():
    """Logits ±a with a = b x − 1 at x = 0.9 and 3, classes 0 and 0: a = −0.1 (wrong) and 2 (right).

    dH/da = −4 a p (1 − p) with p = σ(2a): 0.099 and −0.141, halved by the mean: 0.0495 and −0.0707.
    Body: dH/db = 0.9 · 0.0495 − 3 · 0.0707 = −0.168, so lr 1 gives b = 1.168 and a = 0.051, 2.50: both right.
    Head: each of w₀, −w₁ gets half of it, 0.084, and the biases half of −(0.0495 − 0.0707) each:
    a = 1.084 · 0.9 − 1 + 0.0106 = −0.014: still one right.
    """
    one = toys.client(toys.Fixed([0.9, 3.0], [0, 0]), shifted, known=known(shifted()))
    total = toys.play(Surgical(lrs=(1.0,)), [one]).server
    assert {block: n.item() for block, n in total.items()} == {"1": 2.0, "2": 1.0}
    assert Surgical(lrs=(1.0,)).export(total, None, 0) == {"block": "1", "rate": 1.0}


def test_surgical_chooses_block_and_rate_together():
    """As above, the head's step of lr 1 takes a from −0.1 to −0.014, up by 0.086, and that of lr 2 up by twice that.

    So the head has both right from lr 1.16 on; the body, up by 0.9 · 0.168 = 0.151 with lr 1, from lr 0.66 on.
    Of the three pairs that have both right the first block's first rate wins.
    """
    one = toys.client(toys.Fixed([0.9, 3.0], [0, 0]), shifted, known=known(shifted()))
    algorithm = Surgical(lrs=(0.1, 1.0, 2.0))
    total = toys.play(algorithm, [one]).server
    assert {block: n.tolist() for block, n in total.items()} == {"1": [1.0, 2.0, 2.0], "2": [1.0, 1.0, 2.0]}
    assert algorithm.export(total, None, 0) == {"block": "1", "rate": 1.0}


def test_surgical_tries_every_rate_as_if_it_were_the_only_one():
    data, net = toys.examples(50, classes=10, channels=3, side=18), toys.golden_build()
    one = toys.client(toys.Fixed(data.x.double(), data.y), toys.golden_build, classes=10, known=known(net))
    together = toys.play(Surgical(lrs=(0.05, 0.5)), [one]).server
    for i, lr in enumerate((0.05, 0.5)):
        alone = toys.play(Surgical(lrs=(lr,)), [one]).server
        assert {block: n[i].item() for block, n in together.items()} == {block: n.item() for block, n in alone.items()}


def test_surgical_sums_over_clients_and_rounds():
    clients = [toys.client(toys.Fixed([0.9, 3.0], [0, 0]), shifted, id=k, known=known(shifted())) for k in range(3)]
    once = toys.play(Surgical(lrs=(1.0,)), clients).server
    twice = toys.play(Surgical(lrs=(1.0,)), clients, once).server
    assert (once["1"].item(), once["2"].item(), twice["1"].item()) == (6.0, 3.0, 12.0)


def test_surgical_takes_the_first_of_equals():
    counts = {
        "a": torch.tensor([1.0, 2.0, 2.0]),
        "b": torch.tensor([0.0, 3.0, 3.0]),
        "c": torch.tensor([3.0, 3.0, 1.0]),
    }
    assert Surgical(lrs=(0.1, 0.2, 0.3)).export(counts, None, 0) == {"block": "b", "rate": 0.2}


def test_surgical_with_a_vanishing_step_counts_the_source_model():
    data = toys.examples(23, classes=10, channels=3, side=18)
    net = toys.golden_build()
    x, y = data.x.double(), data.y
    right = int((net.eval()(x).argmax(-1) == y).sum())
    one = toys.client(toys.Fixed(x, y), toys.golden_build, classes=10, known=known(net))
    assert {n.item() for n in toys.play(Surgical(lrs=(1e-12,)), [one]).server.values()} == {right}


def test_surgical_counts_what_the_adapter_would_get_right():
    data = toys.examples(50, classes=10, channels=3, side=18)
    net, x, y = toys.golden_build(), data.x.double(), data.y
    one = toys.client(toys.Fixed(x, y), toys.golden_build, classes=10, known=known(net))
    counts = toys.play(Surgical(lrs=(0.5,)), [one]).server
    for block in blocks(net):
        adapter = Adapter(params.load(toys.golden_build(), one.known["model"]), block=block, rate=0.5)
        logits = torch.cat([adapter(part) for part in x.split(20)])
        assert counts[block].item() == int((logits.argmax(-1) == y).sum())


@pytest.mark.parametrize(
    ("lr", "counts", "best"),
    [
        (0.01, [46, 45, 45, 46, 46], "conv1"),
        (0.05, [44, 24, 22, 45, 46], "linear5"),
        (0.2, [44, 11, 14, 46, 45], "linear4"),
    ],
)
def test_surgical_agrees_with_the_reference_choice(lr, counts, best):
    """The accuracies that the released code printed on its 60 validation images, times 60 (manifest, `_checks`)."""
    arrays = toys.golden("atp/baselines.npz")
    data = toys.Fixed(torch.from_numpy(arrays["Xs"]).double(), arrays["Ys"])
    one = toys.client(data, toys.golden_build, classes=10, known=known(toys.golden_net()))
    total = toys.play(Surgical(lrs=(lr,)), [one]).server
    assert [n.item() for n in total.values()] == counts
    assert Surgical(lrs=(lr,)).export(total, None, 0) == {"block": best, "rate": lr}
