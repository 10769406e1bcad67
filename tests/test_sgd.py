import math

import pytest
import torch

import toys
from acclimate import params
from acclimate.sgd import LocalSGD

SIGMA = 1 / (1 + math.exp(-1))  # p₀ after the first step, at logits ±½


def fit(local: LocalSGD, x=(1.0,), y=(0,), **more):
    net = toys.logistic()
    done = local.fit(net, toys.Fixed(list(x), list(y)), torch.Generator(), **more)
    return net[1].weight.flatten().tolist(), done


def test_sgd_steps_against_the_gradient():
    """x = 1, y = 0, from 0: gradients −½ and σ(1) − 1; loss ln 2, then −ln σ(1); two steps of lr 1."""
    w, done = fit(LocalSGD(lr=1.0, epochs=2))
    assert w == pytest.approx([1.5 - SIGMA, SIGMA - 1.5], abs=1e-6)
    assert done.steps == 2
    assert done.loss == pytest.approx((math.log(2) - math.log(SIGMA)) / 2, abs=1e-6)


def test_sgd_momentum_adds_to_the_second_step():
    """Velocity −½, then 0.9 · (−½) + σ(1) − 1: w₀ = ½ + 0.45 + 1 − σ(1)."""
    assert fit(LocalSGD(lr=1.0, epochs=2, momentum=0.9))[0][0] == pytest.approx(1.95 - SIGMA, abs=1e-6)


def test_sgd_weight_decay_adds_to_the_second_step():
    """λ = 0.2 at w₀ = ½: gradient 0.1 + σ(1) − 1, so w₀ = ½ − 0.1 + 1 − σ(1)."""
    assert fit(LocalSGD(lr=1.0, epochs=2, weight_decay=0.2))[0][0] == pytest.approx(1.4 - SIGMA, abs=1e-6)


def test_sgd_correction_adds_to_every_gradient():
    """Gradient (−½, ½) plus (2, 0), lr ½: w = (−0.75, −0.25)."""
    w, _ = fit(LocalSGD(lr=0.5), correction={"1.weight": torch.tensor([[2.0], [0.0]])})
    assert w == [-0.75, -0.25]


def test_sgd_loss_is_the_mean_over_examples_not_batches():
    """Batches of 2 and 1 from w = 0 with a tiny rate: every example costs ln 2 of two classes."""
    _, done = fit(LocalSGD(lr=1e-9, batch_size=2), x=(1.0, 1.0, 0.0), y=(0, 1, 0))
    assert done.steps == 2
    assert done.loss == pytest.approx(math.log(2), abs=1e-6)
    _, done = fit(LocalSGD(lr=1.0, batch_size=3), x=(1.0, 1.0, 0.0, 1.0), y=(0, 0, 0, 0))
    # Mean gradient −½ · ⅔, so w₀ = ⅓ and the last example has p₀ = σ(⅔); weights 3 : 1.
    expected = (3 * math.log(2) + math.log(1 + math.exp(-2 / 3))) / 4
    assert done.loss == pytest.approx(expected, abs=1e-6)


def test_sgd_term_sees_anchor_and_previous_and_counts_in_the_loss():
    seen = []

    def term(net, x, anchor, previous):
        seen.append((x.flatten().tolist(), anchor, previous))
        return net[1].weight.sum() * 0 + 3.0

    anchor, previous = {"a": torch.ones(1)}, {"p": torch.ones(1)}
    _, done = fit(LocalSGD(lr=1.0), term=term, anchor=anchor, previous=previous)
    assert seen == [([1.0], anchor, previous)]
    assert done.loss == pytest.approx(3 + math.log(2), abs=1e-6)


def test_sgd_leaves_frozen_tensors_alone():
    net = toys.two_layers()
    net[1].requires_grad_(False)
    before = params.of(net)
    LocalSGD(lr=1.0).fit(net, toys.Fixed([1.0], [0]), torch.Generator(), correction={"2.weight": torch.ones(2, 1)})
    assert torch.equal(net[1].weight, before["1.weight"])
    assert not torch.equal(net[2].weight, before["2.weight"])


def test_sgd_trains_in_train_mode():
    net = toys.normed().eval()
    LocalSGD(lr=1.0).fit(net, toys.Fixed([0.0, 2.0], [0, 1]), torch.Generator())
    assert net[1].num_batches_tracked.item() == 1


def test_sgd_shuffles_by_the_generator_given():
    build = toys.build_for(toys.population())
    torch.manual_seed(0)
    start, data = params.of(build()), toys.examples(9)

    def fitted(seed: int) -> torch.Tensor:
        net = params.load(build(), start)
        LocalSGD(batch_size=4).fit(net, data, torch.Generator().manual_seed(seed))
        return net.head.weight

    assert torch.equal(fitted(1), fitted(1))
    assert not torch.equal(fitted(1), fitted(2))


def test_sgd_of_nothing_takes_no_step():
    w, done = fit(LocalSGD(lr=1.0), x=(), y=())
    assert w == [0.0, 0.0] and done == (0.0, 0)
