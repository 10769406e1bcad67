import torch

import toys
from acclimate import params, trees
from acclimate.adapters.none import NoAdaptation
from acclimate.models.build import Build


def test_none_predicts_with_the_running_statistics():
    """Batch norm as new (mean 0, variance 1), head (1, −1): x = 3 gives ±3 / √(1 + 1e-5)."""
    logits = NoAdaptation(toys.normed())(torch.full((2, 1, 1, 1), 3.0))
    expected = 3 / (1 + 1e-5) ** 0.5
    torch.testing.assert_close(logits, torch.tensor([[expected, -expected]] * 2))


def test_none_changes_and_shares_nothing():
    net = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))(None)
    before, x = params.of(net), toys.examples(6).x
    adapter = NoAdaptation(net)
    first = adapter(x)
    adapter.adapt(x)
    assert torch.equal(adapter(x), first)
    assert torch.equal(adapter.predict(x), first)
    assert trees.equal(params.of(net), before)
    assert adapter.shared() == {} and not list(trees.leaves(adapter.state()))


def test_none_agrees_with_golden_vectors():
    adapter = NoAdaptation(toys.golden_net())
    logits = torch.stack([adapter(x) for x in toys.golden_batches()])
    torch.testing.assert_close(logits, toys.golden_logits("none"), **toys.TIGHT)
