import math

import pytest
import torch

import toys
from acclimate import params
from acclimate.calibration.eata import EATA
from acclimate.models.build import Build


def normed_client(x, labels=None, id=0):
    data = toys.Fixed(x, labels or [0] * len(x))
    return toys.client(data, toys.normed, id=id, known={"model": params.of(toys.normed())})


def squares(x):
    """Logits ±s x with s = 1 / √(1 + 1e-5); of the predicted class, dCE/da = ∓2 (1 − p), p = σ(2 s |x|)."""
    s = 1 / math.sqrt(1 + 1e-5)
    slope = 2 * (1 - 1 / (1 + math.exp(-2 * s * abs(x))))
    return (slope * s * x) ** 2, slope**2


def test_eata_averages_squared_gradients_over_all_images_of_all_clients():
    """Images 1 and −2 of client 0, image 3 of client 1: ω(γ) is the mean of (2 (1 − p) s x)², ω(β) of (2 (1 − p))²."""
    total = toys.play(EATA(), [normed_client([1.0, -2.0]), normed_client([3.0], id=1)]).server
    fisher = EATA().export(total, None, 0)["fisher"]
    expected = [sum(parts) / 3 for parts in zip(squares(1), squares(-2), squares(3), strict=True)]
    assert fisher["1.weight"].item() == pytest.approx(expected[0], rel=1e-5)
    assert fisher["1.bias"].item() == pytest.approx(expected[1], rel=1e-5)
    assert set(fisher) == {"1.weight", "1.bias"}


def test_eata_does_not_look_at_labels():
    first, second = (toys.play(EATA(), [normed_client([1.0, -2.0], y)]).server for y in ([0, 0], [1, 1]))
    assert torch.equal(first.squares["1.weight"], second.squares["1.weight"])


def test_eata_of_batches_squares_their_mean_gradient():
    """Images 1 and −1 are of classes 0 and 1: their gradients for β are opposite and cancel, those for γ agree."""
    total = toys.play(EATA(batch_size=2), [normed_client([1.0, -1.0])]).server
    fisher = EATA().export(total, None, 0)["fisher"]
    assert fisher["1.bias"].item() == pytest.approx(0, abs=1e-9)
    assert fisher["1.weight"].item() == pytest.approx(squares(1)[0], rel=1e-5)


def test_eata_of_more_rounds_is_the_same_mean():
    build = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))
    one = toys.client(toys.examples(7), build, classes=3, known={"model": params.of(build(None))})
    once = toys.play(EATA(), [one]).server
    twice = toys.play(EATA(), [one], once).server
    assert (once.terms.item(), twice.terms.item()) == (7, 14)
    torch.testing.assert_close(EATA().export(twice, None, 0), EATA().export(once, None, 0))


def test_eata_of_a_model_without_norms_is_empty():
    one = toys.client(toys.Fixed([1.0], [0]), toys.logistic, known={"model": params.of(toys.logistic())})
    assert EATA().export(toys.play(EATA(), [one]).server, None, 0) == {"fisher": {}}
