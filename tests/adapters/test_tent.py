import math

import pytest
import torch

import toys
from acclimate import params, trees
from acclimate.adapters.none import NoAdaptation
from acclimate.adapters.tent import Tent
from acclimate.errors import UnsupportedModel
from acclimate.losses import entropy
from acclimate.models.build import Build
from acclimate.models.norms import batch_statistics

BATCH = torch.tensor([0.0, 2.0]).view(2, 1, 1, 1)
BUILD = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))


def test_tent_steps_down_the_entropy_after_predicting():
    """Batch (0, 2) has z = ∓s, s = 1 / √(1 + 1e-5); logits ±a with a = γ z + β, γ = 1, β = 0; p = σ(2a).

    dH/da = −ln(p / (1 − p)) · 2 p (1 − p) = −4 a p (1 − p), even in a times a. So ∂/∂γ = −4 s² p (1 − p) with
    p = σ(2s), ∂/∂β = 0, and lr ½ of SGD gives γ = 1 + 2 s² p (1 − p). The prediction precedes the step.
    """
    adapter = Tent(toys.normed(), lr=0.5, optimizer="sgd")
    logits = adapter(BATCH)
    s = 1 / math.sqrt(1 + 1e-5)
    p = 1 / (1 + math.exp(-2 * s))
    torch.testing.assert_close(logits, torch.tensor([[-s, s], [s, -s]]))
    assert adapter.moving()["1.weight"].item() == pytest.approx(1 + 2 * s * s * p * (1 - p), abs=1e-6)
    assert adapter.moving()["1.bias"].item() == pytest.approx(0, abs=1e-6)


def test_tent_first_adam_step_has_the_length_of_the_rate():
    """Adam's first step is lr · g / (|g| + 1e-8): the scale grows by lr whatever the gradient."""
    adapter = Tent(toys.normed(), lr=0.01)
    adapter(BATCH)
    assert adapter.moving()["1.weight"].item() == pytest.approx(1.01, abs=1e-6)


def test_tent_with_a_tiny_rate_equals_batch_statistics():
    net, x = BUILD(None), toys.examples(6).x
    with torch.no_grad(), batch_statistics(net, 2):
        plain = net.eval()(x)
    adapter = Tent(net, lr=1e-12)
    adapter(x)
    torch.testing.assert_close(adapter(x), plain, rtol=0, atol=1e-6)
    assert not torch.allclose(NoAdaptation(net)(x), plain, rtol=0, atol=1e-3)


def test_tent_lowers_entropy_and_moves_scales_and_shifts_only():
    net, x = BUILD(None), toys.examples(8).x
    before, adapter = params.of(net), Tent(net, lr=0.05)
    first = entropy(adapter(x)).mean()
    for _ in range(5):
        last = entropy(adapter(x)).mean()
    assert last < first
    after = params.of(net)
    assert {name for name in after if not torch.equal(after[name], before[name])} == {"bn.weight", "bn.bias"}
    assert set(adapter.shared()) == {"bn.weight", "bn.bias"}


def test_tent_with_two_steps_predicts_between_them():
    first, second = Tent(toys.normed(), lr=0.5, optimizer="sgd"), Tent(toys.normed(), lr=0.5, optimizer="sgd", steps=2)
    first(BATCH)
    torch.testing.assert_close(second(BATCH), first(BATCH))
    torch.testing.assert_close(second.moving()["1.weight"], first.moving()["1.weight"])


def test_tent_leaves_one_image_to_the_source_statistics():
    adapter = Tent(toys.normed(), lr=0.5)
    state = adapter.state()
    torch.testing.assert_close(adapter(BATCH[1:]), NoAdaptation(toys.normed())(BATCH[1:]))
    assert trees.equal(adapter.state(), state)


def test_tent_returns_to_a_state_with_its_optimizer():
    adapter, x = Tent(BUILD(None), lr=0.05), toys.examples(6).x
    start = adapter.state()
    adapter(x)
    middle = trees.load(trees.dump(adapter.state()))
    logits = adapter(x)
    adapter.load_state(middle)
    assert torch.equal(adapter(x), logits)
    adapter.load_state(start)
    assert trees.equal(adapter.state()["moving"], start["moving"])


def test_tent_without_norm_layers_names_itself():
    with pytest.raises(UnsupportedModel, match="'tent' adapts normalisation layers and Sequential has none"):
        Tent(toys.logistic())


def test_tent_on_2d_layers_trains_only_those_and_uses_batch_statistics_everywhere():
    net, x = toys.golden_build(), toys.examples(6, channels=3, side=18).x.double()
    before, adapter = params.of(net), Tent(net, lr=0.05, layers="2d")
    with torch.no_grad(), batch_statistics(net, 2):
        plain = net(x)
    assert torch.equal(adapter(x), plain)
    after = params.of(net)
    moved = {name.partition(".")[0] for name in after if not torch.equal(after[name], before[name])}
    assert moved == {"bn1", "bn2", "bn3"}


def test_tent_on_2d_layers_needs_some():
    with pytest.raises(UnsupportedModel, match=r"Sequential has none \(layers: 2d\)"):
        Tent(toys.normed(), layers="2d")


def test_tent_agrees_with_golden_vectors():
    """The reference trains two-dimensional batch norms only: not bn4."""
    adapter = Tent(toys.golden_net(), lr=0.01, optimizer="sgd", layers="2d")
    logits = torch.stack([adapter(x) for x in toys.golden_batches()])
    torch.testing.assert_close(logits, toys.golden_logits("tent"), **toys.TIGHT)
