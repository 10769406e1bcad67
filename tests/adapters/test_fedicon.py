"""FedICON at test time."""

from dataclasses import replace

import torch
from torch import nn

import toys
from acclimate import params
from acclimate.adapters.fedicon import FedICON, flattened
from acclimate.contrast import Contrastive


class Golden(nn.Module):
    """The tiny encoder of the golden vectors."""

    def __init__(self, arrays):
        super().__init__()
        self.one = nn.Linear(12, 16, bias=False, dtype=torch.float64)
        self.two = nn.Linear(16, 8, bias=False, dtype=torch.float64)
        self.head = nn.Linear(8, 5, bias=False, dtype=torch.float64)
        values = zip(("one", "two", "head"), ("enc_W1", "enc_W2", "cls_W"), strict=True)
        params.load(self, {f"{name}.weight": torch.from_numpy(arrays[key]) for name, key in values})

    def forward(self, x):
        return self.head(self.two(self.one(x).relu()).relu())


def test_fedicon_step_agrees_with_golden_vectors():
    """The views are given, and the batch is the whole set, so that its order does not matter to the mean."""
    arrays = toys.golden("fedicon/fedicon_golden.npz")
    first, second = (torch.from_numpy(arrays[key]) for key in ("enc_x1", "enc_x2"))
    contrast = Contrastive(views=lambda x: torch.cat([first, second]), temperature=0.5)
    adapter = FedICON(Golden(arrays), contrast=contrast)
    toys.assert_same(contrast.loss(adapter.net, first).detach(), arrays["tta_loss_1step"][0])
    logits = adapter(first)
    toys.assert_same(adapter.encoder["one.weight"].detach(), arrays["tta_W1_1step"])
    toys.assert_same(adapter.encoder["two.weight"].detach(), arrays["tta_W2_1step"])
    toys.assert_same(logits, arrays["tta_logits_1step"])


def test_fedicon_step_by_hand():
    """Encoder b = 1, raw features 1 and 2, equal views, τ = 1: rows b·(1, 2, 1, 2), rate 0.01.

    Anchor 1: similarities 2b², b² (its other view), 2b²; loss ln(2e^{2b²} + e^{b²}) − b², whose derivative by b² is
    (4e² + e)/(2e² + e) − 1 at b = 1. Anchor 2: 2b², 2b² and 4b² (its own):
    (4e² + 4e⁴)/(2e² + e⁴) − 4. Their mean times ∂b²/∂b = 2 is the gradient.
    """
    e = torch.tensor(1.0).exp().item()
    slope = (4 * e**2 + e) / (2 * e**2 + e) - 1 + (4 * e**2 + 4 * e**4) / (2 * e**2 + e**4) - 4
    adapter = FedICON(toys.two_layers(), contrast=Contrastive(views=lambda x: x, temperature=1.0, normalise=False))
    logits = adapter(torch.tensor([1.0, 2.0]).view(2, 1, 1, 1))
    b = 1 - 0.01 * slope
    torch.testing.assert_close(logits, torch.tensor([[b, -b], [2 * b, -2 * b]]), rtol=0, atol=1e-5)


def images(number):
    torch.manual_seed(3)
    return torch.rand(number, 1, 8, 8)


def small():
    torch.manual_seed(1)
    return toys.SmallNet(3, (1, 8, 8), nn.Identity())


def steps(adapter, number, monkeypatch):
    """How many images each step saw."""
    seen, real = [], Contrastive.loss
    monkeypatch.setattr(
        Contrastive, "loss", lambda self, net, x, labels=None: seen.append(len(x)) or real(self, net, x)
    )
    adapter.adapt(images(number))
    return seen


def test_fedicon_cuts_a_slot_into_batches_and_skips_a_single_image(monkeypatch):
    assert steps(FedICON(small(), epochs=2, batch_size=4), 9, monkeypatch) == [4, 4, 4, 4]
    assert steps(FedICON(small(), batch_size=4), 10, monkeypatch) == [4, 4, 2]


def test_fedicon_leaves_the_head_and_batch_statistics_alone():
    net = small()
    before = params.of(net)
    FedICON(net, lr=0.1).adapt(images(8))
    after = params.of(net)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    assert moved <= {"conv.weight", "bn.weight", "bn.bias"}
    assert "conv.weight" in moved


def test_fedicon_of_one_image_is_no_adaptation():
    net, x = small(), images(1)
    assert torch.equal(net.eval()(x), FedICON(net)(x))


def test_fedicon_tuning_lowers_the_loss_it_goes_down():
    """Over the same views before and after."""
    net, x, contrast = small(), images(16), Contrastive(temperature=0.5)
    adapter = FedICON(net, lr=0.05, epochs=30, contrast=contrast)
    values = []
    for _ in range(2):
        torch.manual_seed(7)
        values.append(contrast.loss(net, x).item())
        adapter.adapt(x)
    assert values[1] < values[0]


def test_fedicon_picture_has_features_before_and_after_and_changes_nothing():
    x = images(9)
    adapters = [FedICON(small(), lr=0.1, picture=picture) for picture in (False, True)]
    logits = []
    for adapter in adapters:
        torch.manual_seed(0)
        logits.append(adapter(x))
    assert torch.equal(*logits)
    assert adapters[0].figures == {}
    before, after = adapters[1].figures["features"]
    assert before.shape == (9, 2)
    assert not torch.equal(before, after)


def test_fedicon_picture_has_predictions_and_loss_after_every_pass():
    x, adapter = images(9), FedICON(small(), lr=0.1, epochs=3, batch_size=4, picture=True)
    start = adapter.net.eval()(x).argmax(-1)
    final = adapter(x).argmax(-1)
    predictions, loss = adapter.figures["predictions"], adapter.figures["loss"]
    assert predictions.shape == (4, 9) and loss.shape == (4,)  # before, and after three passes
    assert torch.equal(predictions[0], start) and torch.equal(predictions[-1], final)


def test_fedicon_picture_is_the_plane_of_largest_variance():
    """Rows on a line through 3-space keep their distances, and need no second axis."""
    line = torch.linspace(-1, 1, 5).unsqueeze(1) * torch.tensor([2.0, 1.0, 2.0])
    found = flattened(torch.stack([line, line]))
    torch.testing.assert_close(found[0, :, 0], torch.linspace(-3, 3, 5))
    torch.testing.assert_close(found[..., 1], torch.zeros(2, 5), rtol=0, atol=1e-5)


def test_fedicon_options_reach_the_loss():
    other = replace(Contrastive(), temperature=1.0)
    found = []
    for contrast in (Contrastive(), other):
        torch.manual_seed(0)
        adapter = FedICON(small(), lr=0.1, contrast=contrast)
        found.append(adapter(images(6)))
    assert not torch.equal(*found)
