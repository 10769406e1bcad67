import math

import pytest
import torch

import toys
from acclimate.losses import Proximal, entropy


def test_entropy_is_in_nats_row_by_row():
    """p = (¾, ¼): −¾ ln ¾ − ¼ ln ¼ = ln 4 − ¾ ln 3. Uniform over two: ln 2."""
    found = entropy(torch.tensor([[math.log(3), 0.0], [5.0, 5.0]]))
    assert found.tolist() == pytest.approx([math.log(4) - 0.75 * math.log(3), math.log(2)], abs=1e-6)


def test_entropy_of_certainty_is_zero_and_finite():
    logits = torch.tensor([[1000.0, -1000.0]], requires_grad=True)
    value = entropy(logits)
    value.sum().backward()
    assert value.item() == 0.0
    assert logits.grad.isfinite().all()


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
