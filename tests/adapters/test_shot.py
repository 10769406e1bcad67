import math

import pytest
import torch
from torch import nn

import toys
from acclimate import params, trees
from acclimate.adapters.none import NoAdaptation
from acclimate.adapters.shot import SHOT, diversity, pseudo_labels
from acclimate.models.build import Build
from acclimate.models.norms import batch_statistics

BATCH = torch.tensor([0.0, 2.0]).view(2, 1, 1, 1)
BUILD = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))


def test_shot_steps_down_entropy_minus_diversity_after_predicting():
    """Batch (0, 2) has z = ∓s, s = 1 / √(1 + 1e-5); logits ±a with a = γ z + β, γ = 1, β = 0; p = σ(2a).

    Entropy: ∂/∂γ = −4 s² p (1 − p) with p = σ(2s), ∂/∂β = 0 (see Tent's test). The mean prediction is (½, ½) by
    symmetry, where its entropy has no slope. So lr ½ gives γ = 1 + 2 s² p (1 − p); the head stays.
    """
    adapter = SHOT(toys.normed(), lr=0.5)
    logits = adapter(BATCH)
    s = 1 / math.sqrt(1 + 1e-5)
    p = 1 / (1 + math.exp(-2 * s))
    torch.testing.assert_close(logits, torch.tensor([[-s, s], [s, -s]]))
    assert set(adapter.moving()) == {"1.weight", "1.bias"}
    assert adapter.moving()["1.weight"].item() == pytest.approx(1 + 2 * s * s * p * (1 - p), abs=1e-6)
    assert adapter.moving()["1.bias"].item() == pytest.approx(0, abs=1e-6)


def test_shot_diversity_is_the_entropy_of_the_mean_prediction():
    """Rows (¾, ¼) and (¼, ¾) have mean (½, ½): ln 2. Twice the first row: its own entropy."""
    a = math.log(3)
    both, same = torch.tensor([[a, 0.0], [0.0, a]]), torch.tensor([[a, 0.0], [a, 0.0]])
    assert diversity(both).item() == pytest.approx(math.log(2), abs=1e-6)
    assert diversity(same).item() == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25), abs=1e-6)


def test_shot_pseudo_labels_are_refined_once():
    """Three features, predicted (.8, .2), (.5, .5), (.4, .6); angles 0°, 40°, 90°, unit length.

    c⁽⁰⁾ ∝ Σ p z: class 0: .8 (1, 0) + .5 (.766, .643) + .4 (0, 1) = (1.183, .721), at 31.4°;
    class 1: .2 (1, 0) + .5 (.766, .643) + .6 (0, 1) = (.583, .921), at 57.7°. Nearest: 0°→0, 40°→0 (8.6° < 17.7°),
    90°→1. c⁽¹⁾: class 0 at 20°, class 1 at 90°, so the labels stay (0, 0, 1), though argmax could not tell the second.
    """
    angles = torch.tensor([0.0, 40.0, 90.0]).deg2rad()
    z = torch.stack([angles.cos(), angles.sin()], 1)
    logits = torch.tensor([[0.8, 0.2], [0.5, 0.5], [0.4, 0.6]]).log()
    assert pseudo_labels(z, logits).tolist() == [0, 0, 1]


def test_shot_pseudo_labels_of_atp_are_nearest_in_euclidean_distance():
    """Features (1, 0) and (0, 4) are surely of class 0 and 1; (0.6, 1.2), at 63°, is undecided and counts half in both.

    Centroids: (1.3, 0.6) / 1.5 = (0.87, 0.4), at 25°, and (0.3, 4.6) / 1.5 = (0.2, 3.07), at 86°. It is 0.84 from the
    first and 1.91 from the second, but 39° from the first and 23° from the second.
    """
    z = torch.tensor([[1.0, 0.0], [0.0, 4.0], [0.6, 1.2]])
    logits = torch.tensor([[20.0, 0.0], [0.0, 20.0], [0.0, 0.0]])
    assert pseudo_labels(z, logits, "atp").tolist() == [0, 1, 0]
    assert pseudo_labels(z, logits, "shot").tolist() == [0, 1, 1]


def test_shot_pseudo_labels_never_name_a_class_that_lost_its_images():
    """Features 10 and −1, both predicted (.9, .1): both centroids are 4.5, so both images take class 0, the first.

    The refined centroid is 4.5: the cosine of −1 with it is −1, less than with the empty class, whose mean is zero.
    """
    assert pseudo_labels(torch.tensor([[10.0], [-1.0]]), torch.tensor([[0.9, 0.1]] * 2).log()).tolist() == [0, 0]


@pytest.mark.parametrize("centroids", ["shot", "atp"])
def test_shot_pseudo_labels_change_the_step(centroids):
    x = toys.examples(8).x
    net = BUILD(None)
    start = params.of(net)
    plain, labelled = SHOT(net, lr=0.1), SHOT(params.load(BUILD(None), start), lr=0.1, beta=0.3, centroids=centroids)
    assert torch.equal(plain(x), labelled(x))  # predictions precede the step
    assert not torch.equal(plain(x), labelled(x))


def test_shot_with_a_tiny_rate_equals_batch_statistics():
    net, x = BUILD(None), toys.examples(6).x
    with torch.no_grad(), batch_statistics(net, 2):
        plain = net.eval()(x)
    adapter = SHOT(net, lr=1e-12)
    adapter(x)
    torch.testing.assert_close(adapter(x), plain, rtol=0, atol=1e-6)


def test_shot_moves_all_but_the_head_and_no_statistics():
    net, x = BUILD(None), toys.examples(8).x
    before, adapter = params.of(net), SHOT(net, lr=0.05)
    adapter(x)
    after = params.of(net)
    assert {n for n in after if not torch.equal(after[n], before[n])} == {"conv.weight", "bn.weight", "bn.bias"}


def test_shot_leaves_one_image_to_the_source_statistics():
    adapter = SHOT(toys.normed(), lr=0.5)
    state = adapter.state()
    torch.testing.assert_close(adapter(BATCH[1:]), NoAdaptation(toys.normed())(BATCH[1:]))
    assert trees.equal(adapter.state(), state)


def test_shot_on_a_model_that_is_all_head_is_no_adaptation():
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    x = toys.examples(4).x
    assert torch.equal(SHOT(net)(x), NoAdaptation(net)(x))


def test_shot_agrees_with_golden_vectors():
    adapter = SHOT(toys.golden_net(), lr=0.01)
    logits = torch.stack([adapter(x) for x in toys.golden_batches()])
    torch.testing.assert_close(logits, toys.golden_logits("shot_beta0"), **toys.TIGHT)


def test_shot_with_pseudo_labels_agrees_with_the_reference_loss():
    """The mean cross-entropy that the released code reported with beta 0.3 (manifest, `_checks`)."""
    labels = torch.from_numpy(toys.golden("atp/inputs.npz")["Y0"])
    adapter = SHOT(toys.golden_net(), lr=0.01, beta=0.3, centroids="atp")
    logits = torch.cat([adapter(x) for x in toys.golden_batches()])
    assert nn.functional.cross_entropy(logits, labels).item() == pytest.approx(0.9565384142977766, abs=1e-9)
