import math

import pytest
import torch
from torch import nn

import toys
from acclimate.adapters.bbse import BBSE


def votes(*classes: int, of: int = 2) -> torch.Tensor:
    """Images that are logits: one for each class predicted."""
    return torch.eye(of)[list(classes)].view(len(classes), of, 1, 1)


def prior_of(adapter: BBSE) -> list[float]:
    return adapter.state()["prior"].tolist()


@pytest.mark.parametrize("confusion", [[[8.0, 4.0], [2.0, 6.0]], [[8.0, 40.0], [2.0, 60.0]]])
def test_bbse_solves_for_the_label_distribution(confusion):
    """P(ŷ = 0 | y) is 0.8 and 0.4 however often the classes were seen; half the batch is called 0.

    0.8 q + 0.4 (1 − q) = ½ gives q = ¼, and the logits gain (ln ¼, ln ¾).
    """
    x = votes(0, 1)
    adapter = BBSE(nn.Flatten(), confusion=torch.tensor(confusion), smoothing=0.0)
    gained = adapter(x) - x.flatten(1)
    assert gained[0].tolist() == pytest.approx([math.log(0.25), math.log(0.75)], abs=1e-5)
    torch.testing.assert_close(gained[1], gained[0])


def test_bbse_smooths_with_the_uniform_distribution():
    """All votes for class 0 of a perfect classifier: q = (1, 0), and 0.9 q + 0.1 / 2 = (0.95, 0.05)."""
    adapter = BBSE(nn.Flatten(), confusion=torch.eye(2), smoothing=0.1)
    adapter(votes(0, 0))
    assert prior_of(adapter) == pytest.approx([0.95, 0.05], abs=1e-6)


def test_bbse_soft_uses_probabilities():
    """Logits (ln 3, 0) are p = (¾, ¼): with P(ŷ = 0 | y) of 0.8 and 0.4, 0.8 q + 0.4 (1 − q) = ¾, q = 7/8."""
    x = torch.tensor([[math.log(3), 0.0]]).view(1, 2, 1, 1)
    confusion = torch.tensor([[0.8, 0.4], [0.2, 0.6]])
    adapter = BBSE(nn.Flatten(), confusion=confusion, kind="soft", smoothing=0.0)
    adapter(x)
    assert prior_of(adapter) == pytest.approx([0.875, 0.125], abs=1e-5)


def test_bbse_with_identity_confusion_recovers_the_histogram():
    adapter = BBSE(nn.Flatten(), confusion=torch.eye(3) * 7, smoothing=0.0)
    adapter(votes(0, 2, 2, 1, 2, of=3))
    assert prior_of(adapter) == pytest.approx([0.2, 0.2, 0.6], abs=1e-6)


def test_bbse_counts_an_unseen_class_as_recognised():
    confusion = torch.tensor([[5.0, 0.0], [0.0, 0.0]])
    adapter = BBSE(nn.Flatten(), confusion=confusion, smoothing=0.0)
    adapter(votes(0, 1, 1, 1))
    assert prior_of(adapter) == pytest.approx([0.25, 0.75], abs=1e-6)


def test_bbse_predicts_with_the_prior_it_was_given():
    adapter, x = BBSE(nn.Flatten(), confusion=torch.eye(2)), votes(0)
    assert torch.equal(adapter.predict(x), x.flatten(1))
    adapter.load_shared({"prior": torch.tensor([0.5, 0.5])})
    torch.testing.assert_close(adapter.predict(x), x.flatten(1) - math.log(2))


def test_bbse_agrees_with_golden_vectors():
    arrays = toys.golden("atp/baselines.npz")
    adapter = BBSE(toys.golden_net(), confusion=torch.from_numpy(arrays["bbse_confusion_hard"]))
    torch.testing.assert_close(adapter.inverse, torch.from_numpy(arrays["bbse_pinv_hard"]), **toys.TIGHT)
    logits = torch.stack([adapter(x) for x in toys.golden_batches()])
    torch.testing.assert_close(logits, toys.golden_logits("bbse_hard"), **toys.TIGHT)
