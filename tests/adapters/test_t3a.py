import math

import pytest
import torch
from torch import nn

import toys
from acclimate import params, trees
from acclimate.adapters.t3a import T3A
from acclimate.errors import UnsupportedModel


def headed(rows: list[list[float]]) -> nn.Module:
    """Two inputs that are features, and a head of these rows without bias."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(2, len(rows), bias=False))
    return params.load(net, {"1.weight": torch.tensor(rows)})


def features(*z: tuple[float, float]) -> torch.Tensor:
    return torch.tensor(z).view(len(z), 2, 1, 1)


def test_t3a_predicts_with_prototypes_that_include_the_batch():
    """Head rows e₀, e₁; z = (3, 4) is called class 1 and joins it as (0.6, 0.8).

    c₁ ∝ (0, 1) + (0.6, 0.8) = (0.6, 1.8), of length √3.6; logits 3 and (3 · 0.6 + 4 · 1.8) / √3.6 = 9 / √3.6.
    """
    logits = T3A(headed([[1.0, 0.0], [0.0, 1.0]]))(features((3.0, 4.0)))
    assert logits[0].tolist() == pytest.approx([3.0, 9 / math.sqrt(3.6)], abs=1e-5)


def test_t3a_before_any_batch_predicts_by_normalised_rows():
    """Rows (3, 4) and (0, −2) become (0.6, 0.8) and (0, −1): z = (1, 1) gives 1.4 and −1."""
    adapter = T3A(headed([[3.0, 4.0], [0.0, -2.0]]))
    assert adapter.predict(features((1.0, 1.0)))[0].tolist() == pytest.approx([1.4, -1.0], abs=1e-6)


def test_t3a_keeps_the_supports_of_least_entropy():
    """Logits are 2 z. The row (0, 2) has logits (0, 4); (0, ½) has (0, 1), more entropy; (0, 5) has (0, 10), less."""
    adapter = T3A(headed([[2.0, 0.0], [0.0, 2.0]]), keep=1)
    adapter(features((0.0, 0.5)))
    assert adapter.state()["supports"].tolist() == [[2.0, 0.0], [0.0, 2.0]]
    adapter(features((0.0, 5.0)))
    assert adapter.state()["supports"].tolist() == [[2.0, 0.0], [0.0, 5.0]]
    assert adapter.state()["labels"].tolist() == [0, 1]


def test_t3a_with_room_for_all_equals_no_limit():
    rows, x = [[1.0, 0.2], [-0.3, 1.0]], features((3.0, 4.0), (1.0, -1.0), (-2.0, 1.0))
    assert torch.equal(T3A(headed(rows), keep=100)(x), T3A(headed(rows))(x))
    assert not torch.equal(T3A(headed(rows), keep=1)(x), T3A(headed(rows))(x))


def test_t3a_supports_grow_with_the_stream():
    adapter = T3A(headed([[1.0, 0.0], [0.0, 1.0]]))
    start = adapter.state()
    adapter(features((3.0, 4.0), (1.0, 0.0)))
    adapter.adapt(features((0.0, 1.0)))
    assert adapter.state()["labels"].tolist() == [0, 1, 1, 0, 1]
    assert adapter.shared() == {}
    adapter.load_state(start)
    assert trees.equal(adapter.state(), start)


def test_t3a_prediction_alone_teaches_nothing():
    adapter = T3A(headed([[1.0, 0.0], [0.0, 1.0]]))
    before = adapter.state()
    adapter.predict(features((3.0, 4.0)))
    assert trees.equal(adapter.state(), before)


def test_t3a_without_a_head_says_so():
    with pytest.raises(UnsupportedModel, match=r"Flatten has no nn\.Linear layer"):
        T3A(nn.Flatten())


def test_t3a_agrees_with_golden_vectors():
    adapter = T3A(toys.golden_net())
    logits = torch.stack([adapter(x) for x in toys.golden_batches()])
    torch.testing.assert_close(logits, toys.golden_logits("t3a_all"), **toys.TIGHT)
