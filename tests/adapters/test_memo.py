import math

import pytest
import torch

import toys
from acclimate import params, trees
from acclimate.adapters.memo import MEMO, after_steps, marginal_entropy
from acclimate.adapters.none import NoAdaptation
from acclimate.adapters.surgical import Surgical
from acclimate.data.augment import crops, mirrored
from acclimate.models.build import Build

BUILD = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))


def test_memo_marginal_entropy_is_that_of_the_mean_prediction():
    """Copies with p = (¾, ¼) and (¼, ¾) have mean (½, ½), of entropy ln 2."""
    a = math.log(3)
    assert marginal_entropy(torch.tensor([[a, 0.0], [0.0, a]])).item() == pytest.approx(math.log(2), abs=1e-6)


def test_memo_steps_on_the_copies_and_predicts_the_image():
    """Logits (w₀ x, w₁ x) with w = (1, 0), copies x = 1 and x = 0: p̄ = (σ(1) + ½) / 2 for class 0.

    Ent(p̄) has dH/dp̄ = ln((1 − p̄) / p̄); dp̄/dw₀ = ½ σ(1) (1 − σ(1)) from the first copy, −dp̄/dw₁. With lr 2 the
    step of w₀ is g = σ(1) (1 − σ(1)) ln(p̄ / (1 − p̄)), that of w₁ is −g. The image x = 3 then gets (3 + 3g, −3g).
    """
    net = params.load(toys.logistic(), {"1.weight": torch.tensor([[1.0], [0.0]])})
    copies = torch.tensor([1.0, 0.0]).view(2, 1, 1, 1)
    s = 1 / (1 + math.exp(-1))
    mean = (s + 0.5) / 2
    g = s * (1 - s) * math.log(mean / (1 - mean))
    logits = after_steps(net, torch.full((1, 1, 1), 3.0), [copies], lr=2.0)
    torch.testing.assert_close(logits, torch.tensor([3 + 3 * g, -3 * g]))
    assert net[1].weight.flatten().tolist() == [1.0, 0.0]  # and the model is the source again


def test_memo_with_a_vanishing_step_is_no_adaptation():
    net, x = BUILD(None), toys.examples(5).x
    torch.testing.assert_close(MEMO(net, lr=1e-12)(x), NoAdaptation(net)(x), rtol=0, atol=1e-6)


def test_memo_on_one_copy_of_a_one_block_model_is_one_entropy_step():
    """The marginal entropy over the image alone is its entropy; one block is all of a one-layer model."""
    net, x = toys.logistic(), torch.tensor([1.5]).view(1, 1, 1, 1)
    params.load(net, {"1.weight": torch.tensor([[0.7], [0.0]])})
    memo = after_steps(net, x[0], [x], lr=0.3)
    torch.testing.assert_close(memo.unsqueeze(0), Surgical(net, block="1", rate=0.3)(x))


def test_memo_of_two_steps_takes_the_second_where_the_first_ended():
    net, x = toys.logistic(), torch.tensor([1.5]).view(1, 1, 1, 1)
    params.load(net, {"1.weight": torch.tensor([[0.7], [0.0]])})
    twice = after_steps(net, x[0], [x, x], lr=0.3)
    (moved,) = Surgical(net, block="1", rate=0.3)(x)  # which leaves the model where the step ended
    torch.testing.assert_close(after_steps(net, x[0], [x], lr=0.3), twice)
    assert not torch.allclose(moved, twice)


def test_memo_draws_copies_anew_for_each_step():
    net, x = BUILD(None), toys.examples(1).x
    torch.manual_seed(1)
    twice = MEMO(net, lr=0.5, copies=4, steps=2)(x)[0]
    torch.manual_seed(1)
    drawn = [crops(mirrored(x, 4).expand(4, -1, -1, -1), x.shape[-2:], flip=True) for _ in range(2)]
    assert not torch.equal(*drawn)
    torch.testing.assert_close(after_steps(net, x[0], drawn, lr=0.5), twice)


def test_memo_keeps_images_apart_and_carries_nothing_over():
    net, x = BUILD(None), toys.examples(6).x
    adapter = MEMO(net, lr=0.5, copies=4)
    before, state = params.of(net), adapter.state()
    torch.manual_seed(1)
    whole = adapter(x)
    torch.manual_seed(1)
    assert torch.equal(adapter(x[:2]), whole[:2])
    assert trees.equal(params.of(net), before)
    assert trees.equal(adapter.state(), state)


def test_memo_draws_follow_the_seed_of_the_default_generator():
    adapter, x = MEMO(BUILD(None), lr=0.5, copies=4), toys.examples(3).x
    torch.manual_seed(1)
    first = adapter(x)
    torch.manual_seed(2)
    assert not torch.equal(adapter(x), first)
    torch.manual_seed(1)
    assert torch.equal(adapter(x), first)


def test_memo_crops_show_the_image_mirrored_unless_told_black():
    """A white image has no edges in a mirror: all copies are the image; in black they are not, and the step differs."""
    net, white = BUILD(None), torch.ones(1, 1, 8, 8)
    adapters = [MEMO(net, lr=0.5, copies=4), MEMO(net, lr=0.5, copies=4, padding="black")]
    logits = []
    for adapter in adapters:
        torch.manual_seed(1)
        logits.append(adapter(white)[0])
    alone = after_steps(net, white[0], [white.expand(4, -1, -1, -1)], lr=0.5)
    torch.testing.assert_close(logits[0], alone)
    assert not torch.allclose(logits[1], alone, atol=1e-4)


def test_memo_agrees_with_golden_vectors():
    arrays, net = toys.golden("atp/baselines.npz"), toys.golden_net().eval()
    images, copies = (torch.from_numpy(arrays[name]).double() for name in ("memo_X", "memo_aug"))
    with torch.no_grad():
        toys.assert_same(net(images), arrays["memo_logits_before"])
        toys.assert_same(torch.stack([marginal_entropy(net(c)) for c in copies]), arrays["memo_marginal_entropy"])
    logits = torch.stack([after_steps(net, x, [c], lr=0.005) for x, c in zip(images, copies, strict=True)])
    torch.testing.assert_close(logits, toys.golden_logits("memo"), **toys.TIGHT)
