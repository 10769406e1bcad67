import math

import pytest
import torch

import toys
from acclimate import params
from acclimate.adapters.atp import ATP
from acclimate.adapters.surgical import Surgical
from acclimate.errors import MissingKnowledge
from acclimate.models.build import Build
from acclimate.models.modules import Modules

BUILD = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))


def test_surgical_steps_on_its_block_and_predicts_after():
    """Image x = 1, body b, head (1, −1): logits ±b, p = σ(2b), dH/db = −4 b p (1 − p) (see Tent's test).

    From b = 1 at rate ½: b = 1 + 2 p (1 − p) with p = σ(2), and the prediction has logits ±b.
    """
    adapter = Surgical(toys.two_layers(), block="1", rate=0.5)
    logits = adapter(torch.ones(1, 1, 1, 1))
    p = 1 / (1 + math.exp(-2))
    b = 1 + 2 * p * (1 - p)
    torch.testing.assert_close(logits, torch.tensor([[b, -b]]))
    assert adapter.net[2].weight.flatten().tolist() == [1.0, -1.0]


def test_surgical_takes_every_batch_from_the_source():
    x, z = toys.examples(6, seed=1).x, toys.examples(6, seed=2).x
    once, twice = Surgical(BUILD(None), block="conv", rate=0.1), Surgical(BUILD(None), block="conv", rate=0.1)
    params.load(twice.net, params.of(once.net))
    twice.source = once.source
    twice(x)
    assert torch.equal(twice(z), once(z))


def test_surgical_equals_atp_with_rates_on_its_block_only():
    net, x = toys.golden_build(), toys.golden_batches()[0]
    start = params.of(net)
    names = Modules(net, "params").tensors
    rates = {name: torch.tensor(0.3 if name.startswith(("conv2.", "bn2.")) else 0.0).double() for name in names}
    expected = ATP(net, rates=rates, online=False)(x)
    adapter = Surgical(params.load(toys.golden_build(), start), block="conv2", rate=rates["conv2.weight"].item())
    torch.testing.assert_close(adapter(x), expected, **toys.TIGHT)


def test_surgical_refuses_a_block_of_another_model():
    with pytest.raises(MissingKnowledge, match="Sequential has no block 'layer4', only 1, 2"):
        Surgical(toys.two_layers(), block="layer4", rate=0.1)


@pytest.mark.parametrize(
    ("block", "golden"),
    [("conv1", "block1"), ("conv2", "block2"), ("linear4", "block4"), ("linear5", "last_layer")],
)
def test_surgical_agrees_with_golden_vectors(block, golden):
    adapter = Surgical(toys.golden_net(), block=block, rate=0.01)
    logits = torch.stack([adapter(x) for x in toys.golden_batches()])
    torch.testing.assert_close(logits, toys.golden_logits(f"surgical_{golden}"), **toys.TIGHT)
