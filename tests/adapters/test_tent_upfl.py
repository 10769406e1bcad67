import math

import pytest
import torch

import fedtta_golden
import toys
from acclimate import params
from acclimate.adapters.surgical import Surgical
from acclimate.adapters.tent_upfl import TentUPFL


def test_tent_upfl_steps_down_the_entropy_in_bits():
    """Body b = 1, head (1, −1), image x = 1: logits ±b, p = σ(2), dH/db = −4 b p (1 − p) nats, over ln 2 in bits.

    With rate 0.1, no decay, no bound: b = 1 + 0.4 p (1 − p) / ln 2. The head moves alike: ±(1 + 0.2 p (1 − p) / ln 2).
    """
    adapter = TentUPFL(toys.two_layers(), lr=0.1, weight_decay=0.0, clip=None)
    adapter(torch.ones(1, 1, 1, 1))
    p = 1 / (1 + math.exp(-2))
    step = p * (1 - p) / math.log(2)
    assert adapter.net[1].weight.item() == pytest.approx(1 + 0.4 * step)
    assert adapter.net[2].weight.flatten().tolist() == pytest.approx([1 + 0.2 * step, -1 - 0.2 * step])


def test_tent_upfl_decays_and_clips():
    adapter = TentUPFL(toys.two_layers(), lr=0.1, weight_decay=1.0, clip=1e-9)
    adapter(torch.ones(1, 1, 1, 1))
    assert adapter.net[1].weight.item() == pytest.approx(0.9)  # nothing but the decay is left


def test_tent_upfl_on_one_layer_is_surgical_with_another_rate():
    net, x = toys.logistic(), torch.rand(5, 1, 1, 1)
    start = {"1.weight": torch.tensor([[0.3], [-0.2]])}
    bits = TentUPFL(params.load(net, start), lr=0.1, weight_decay=0.0, clip=None)(x)
    nats = Surgical(params.load(toys.logistic(), start), block="1", rate=0.1 / math.log(2))(x)
    torch.testing.assert_close(bits, nats)


def test_tent_upfl_agrees_with_golden_vectors():
    arrays = toys.golden("fedtta/test_time.npz")
    x = torch.from_numpy(arrays["test/c0/X"]).double()
    for batch_size in (32, 64):  # no matter
        logits = TentUPFL(fedtta_golden.net(), lr=0.1, batch_size=batch_size)(x)
        toys.assert_same(logits, arrays["tent_upfl/c0/logits_after_one_step_lr0.1"])
