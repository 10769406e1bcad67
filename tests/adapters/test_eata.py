import math

import pytest
import torch

import toys
from acclimate import params, trees
from acclimate.adapters.eata import EATA
from acclimate.adapters.none import NoAdaptation
from acclimate.adapters.tent import Tent
from acclimate.errors import MissingKnowledge, UnsupportedModel
from acclimate.models.build import Build

BATCH = torch.tensor([0.0, 2.0]).view(2, 1, 1, 1)
AFFINE = {"1.weight", "1.bias", "bn.weight", "bn.bias"}
BUILD = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))
S = 1 / math.sqrt(1 + 1e-5)  # the batch (0, 2) is normalised to ∓S
P = 1 / (1 + math.exp(-2 * S))
H = -P * math.log(P) - (1 - P) * math.log(1 - P)  # 0.365, of both images


def made(net, value=0.0, **options):
    """With SGD, and the same Fisher information for all."""
    fisher = {name: torch.full_like(tensor, value) for name, tensor in net.named_parameters() if name in AFFINE}
    return EATA(net, fisher=fisher, **{"momentum": 0.0, "lr": 0.5, "margin": 0.6, "redundancy": 2.0, **options})


def scale(adapter):
    return adapter.moving()["1.weight"].item()


def test_eata_weighs_images_by_their_certainty():
    """Tent's step on this batch is 2 s² p (1 − p) (see its test); EATA's is exp(E₀ − H) times it, E₀ = 0.6 ln 2."""
    adapter = made(toys.normed())
    torch.testing.assert_close(adapter(BATCH), torch.tensor([[-S, S], [S, -S]]))
    weight = math.exp(0.6 * math.log(2) - H)
    assert scale(adapter) == pytest.approx(1 + weight * 2 * S * S * P * (1 - P), abs=1e-6)
    plain = made(toys.normed(), weighted=False)
    plain(BATCH)
    assert scale(plain) == pytest.approx(1 + 2 * S * S * P * (1 - P), abs=1e-6)


def test_eata_leaves_out_images_of_high_entropy():
    """H = 0.365 is above 0.5 ln 2 = 0.347: nobody is left, and nothing happens."""
    adapter = made(toys.normed(), margin=0.5)
    before = adapter.state()
    adapter(BATCH)
    assert trees.equal(adapter.state(), before)


def test_eata_leaves_out_images_like_those_before():
    """After the first batch the mean prediction is (½, ½). Its cosine with (p, 1 − p) is √½ / √(p² + (1 − p)²) = 0.8.

    The scale has moved by then, so p is a little surer: the threshold 0.7 leaves them out, 0.9 does not.
    """
    low, high = made(toys.normed(), redundancy=0.7), made(toys.normed(), redundancy=0.9)
    for adapter in (low, high):
        adapter(BATCH)
        torch.testing.assert_close(adapter.state()["mean"], torch.tensor([0.5, 0.5]))
    first = scale(low)
    low(BATCH)
    high(BATCH)
    assert (scale(low), scale(high) > first) == (first, True)


def test_eata_moves_its_average_by_a_tenth():
    adapter = made(toys.normed())
    adapter.mean = torch.tensor([1.0, 0.0])
    adapter(BATCH)
    torch.testing.assert_close(adapter.state()["mean"], torch.tensor([0.95, 0.05]))


def test_eata_is_held_near_the_source():
    """At scale 1.5 instead of 1, ω = 2, β = 3: the penalty has slope 2 β ω (1.5 − 1) = 6, so lr 0.1 takes 0.6 off."""
    free, held = made(toys.normed(), 2.0, lr=0.1, fisher_weight=0.0), made(toys.normed(), 2.0, lr=0.1, fisher_weight=3)
    for adapter in (free, held):
        with torch.no_grad():
            adapter.moving()["1.weight"].fill_(1.5)
        adapter(BATCH)
    assert scale(free) - scale(held) == pytest.approx(0.6, abs=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_eata_without_filters_weights_and_fisher_equals_tent(optimizer):
    net, batches = BUILD(None), [toys.examples(6, seed=seed).x for seed in range(4)]
    other, same = params.load(BUILD(None), params.of(net)), {"lr": 0.05, "momentum": 0.9, "optimizer": optimizer}
    eata = made(net, 5.0, margin=10.0, redundancy=2.0, weighted=False, fisher_weight=0.0, **same)
    tent = Tent(other, **same)
    for x in batches:
        assert torch.equal(eata(x), tent(x))
    assert trees.equal(eata.moving(), tent.moving())


def test_eata_leaves_one_image_to_the_source_statistics():
    adapter = made(toys.normed())
    state = adapter.state()
    torch.testing.assert_close(adapter(BATCH[1:]), NoAdaptation(toys.normed())(BATCH[1:]))
    assert trees.equal(adapter.state(), state)


def test_eata_names_itself_and_its_fisher():
    with pytest.raises(UnsupportedModel, match="'eata' adapts normalisation layers"):
        EATA(toys.logistic(), fisher={})
    with pytest.raises(MissingKnowledge, match="learn it on this model"):
        EATA(toys.normed(), fisher={})
