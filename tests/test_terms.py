import math

import pytest
import torch
from torch import nn

import toys
from acclimate import params
from acclimate.terms import Contrast, Proximal, SelfDistillation

ONE = torch.ones(1, 1, 1, 1)


def test_proximal_is_half_mu_times_the_squared_distance():
    """w = (0, 0), anchor (1, −2), μ = 0.5: ½ · 0.5 · (1 + 4) = 1.25, and the gradient is μ (w − anchor)."""
    net = toys.logistic()
    loss = Proximal(0.5)(net, torch.zeros(1), {"1.weight": torch.tensor([[1.0], [-2.0]])}, None)
    loss.backward()
    assert loss.item() == 1.25
    assert net[1].weight.grad.flatten().tolist() == [-0.5, 1.0]


def test_proximal_leaves_frozen_tensors_out():
    net = toys.two_layers()
    net[1].requires_grad_(False)
    anchor = {"1.weight": torch.full((1, 1), 100.0), "2.weight": torch.tensor([[2.0], [-1.0]])}
    assert Proximal(2.0)(net, torch.zeros(1), anchor, None).item() == 1.0  # ½ · 2 · (1 − 2)²


def test_proximal_with_mu_zero_is_zero():
    net = toys.logistic()
    assert Proximal(0.0)(net, torch.zeros(1), {"1.weight": torch.ones(2, 1)}, None).item() == 0.0


def plane(first, second):
    """One input x, features x · (first, second), and a head."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False), nn.Linear(2, 2, bias=False))
    return params.load(net, {"1.weight": torch.tensor([[first], [second]]), "2.weight": torch.eye(2)})


def test_contrast_pulls_to_the_anchor_and_away_from_the_model_sent_last():
    """z = (1, 0), z_glob = (1, 0), z_prev = (0, 1): cosines 1 and 0, over τ = ½: 2 and 0, so −ln σ(2) = ln(1 + e⁻²).

    At its own maximum the first cosine has no slope; the second grows by (0, 1), so the gradient is
    μ σ(−2) / τ · (0, 1), with μ = 3: 6 σ(−2).
    """
    net = plane(1.0, 0.0)
    loss = Contrast(mu=3.0)(net, ONE, params.of(plane(1.0, 0.0)), params.of(plane(0.0, 1.0)))
    loss.backward()
    assert loss.item() == pytest.approx(3 * math.log(1 + math.exp(-2)), abs=1e-6)
    assert net[1].weight.grad.flatten().tolist() == pytest.approx([0, 6 / (1 + math.exp(2))], abs=1e-6)


def test_contrast_is_constant_where_both_models_are_the_same():
    net, other = plane(1.0, 2.0), params.of(plane(3.0, 1.0))
    loss = Contrast(mu=1.0)(net, ONE, other, other)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(2), abs=1e-6)
    assert net[1].weight.grad.abs().max().item() < 1e-6


def test_self_distillation_is_the_divergence_from_the_model_sent_last():
    """The teacher's logits (3 ln 3, 0) at τ = 3 give (¾, ¼), the student is uniform: KL = ln 2 + ¾ ln ¾ + ¼ ln ¼.

    Times μ τ² = ½ · 9; the gradient of the logits is μ τ (q − p) = 1.5 · (½ − ¾, ½ − ¼).
    """
    net = toys.logistic()
    previous = {"1.weight": torch.tensor([[3 * math.log(3)], [0.0]])}
    loss = SelfDistillation()(net, ONE, {}, previous)
    loss.backward()
    kl = math.log(2) + 0.75 * math.log(0.75) + 0.25 * math.log(0.25)
    assert loss.item() == pytest.approx(4.5 * kl, abs=1e-5)
    assert net[1].weight.grad.flatten().tolist() == pytest.approx([-0.375, 0.375], abs=1e-5)


@pytest.mark.parametrize("term", [Contrast, SelfDistillation])
def test_terms_need_a_model_sent_before(term):
    net = toys.two_layers()
    assert term()(net, ONE, params.of(net), None).item() == 0.0


@pytest.mark.parametrize("term", [Proximal, Contrast, SelfDistillation])
def test_terms_with_weight_zero_are_zero(term):
    net, other = toys.two_layers(), {"1.weight": torch.full((1, 1), -2.0), "2.weight": torch.tensor([[2.0], [1.0]])}
    assert term(mu=0.0)(net, ONE, other, other).item() == 0.0
    assert term()(net, ONE, other, other).item() != 0.0


@pytest.mark.parametrize("term", [Contrast, SelfDistillation])
def test_terms_look_back_without_touching_statistics_or_mode(term):
    net = toys.normed().train()
    before = params.of(net)
    given = {name: tensor.clone() for name, tensor in before.items()}
    term()(net, torch.randn(4, 1, 1, 1), before, before)
    assert net.training
    assert all(torch.equal(before[name], given[name]) for name in given)
