import math

import pytest
import torch

import toys
from acclimate import trees
from acclimate.aggregators.fedamp import FedAMP


def rows(aggregator: FedAMP, *values: float) -> list[list[float]]:
    uploads = [toys.upload(value) for value in values]
    return aggregator.mix(None, uploads, slot=0).figures["weights"].tolist()


@pytest.mark.parametrize(("sigma", "attention"), [(1.0, 1.0), (2.0, 0.5)])
def test_fedamp_weighs_by_distance(sigma, attention):
    """w = 0 and 2: ‖w_0 − w_1‖² = 4, ξ₀₁ = attention / 2 · e^(−4/σ), the rest stays; downloads 2 ξ and 2 − 2 ξ."""
    mix = FedAMP(sigma, attention).mix(None, [toys.upload(0.0), toys.upload(2.0)], slot=0)
    xi = attention / 2 * math.exp(-4 / sigma)
    assert mix.figures["weights"].flatten().tolist() == pytest.approx([1 - xi, xi, xi, 1 - xi], abs=1e-12)
    assert [d["w"].item() for d in mix.downloads] == pytest.approx([2 * xi, 2 - 2 * xi], abs=1e-6)


def test_fedamp_distance_is_over_all_tensors():
    """One tensor differs by 1, another by (1, 1): the squared distance is 3."""
    uploads = [
        toys.upload({"a": torch.tensor(0.0), "b": torch.zeros(2)}),
        toys.upload({"a": torch.tensor(1.0), "b": torch.ones(2)}),
    ]
    weights = FedAMP(sigma=1.0).mix(None, uploads, slot=0).figures["weights"]
    assert weights[0, 1].item() == pytest.approx(math.exp(-3) / 2, abs=1e-12)


def test_fedamp_at_the_median_of_distances():
    """w = 0, 1, 3: squared distances 1, 4, 9, so σ = 4; ξ₀₁ = e^(−1/4) / 3, ξ₁₂ = e^(−1) / 3, ξ₀₂ = e^(−9/4) / 3."""
    weights = rows(FedAMP(), 0.0, 1.0, 3.0)
    found = weights[0][1], weights[1][2], weights[0][2]
    assert found == pytest.approx([math.exp(-1 / 4) / 3, math.exp(-1) / 3, math.exp(-9 / 4) / 3], abs=1e-7)


def test_fedamp_at_the_median_knows_no_scale():
    one, other = (torch.tensor(rows(FedAMP(), 0.0, 1 * s, 3 * s, 7 * s)) for s in (1.0, 512.0))
    torch.testing.assert_close(one, other)


def test_fedamp_at_the_median_of_equal_clients_is_uniform_and_leaves_the_odd_one_alone():
    assert torch.allclose(torch.tensor(rows(FedAMP(), 0.7, 0.7, 0.7)), torch.full((3, 3), 1 / 3))
    weights = rows(FedAMP(), 0.5, 0.5, 0.5, 0.5, 2.0)
    assert weights[4] == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert weights[0][:4] == pytest.approx([2 / 5, 1 / 5, 1 / 5, 1 / 5], abs=1e-7)
    assert rows(FedAMP(), 0.3) == [[1.0]]


def test_fedamp_tells_close_clients_that_are_far_from_zero_apart():
    """At 1000, clients 0.01 apart: ‖w_0 − w_1‖² = 4 · 10⁻⁴, of which squares of 1000 would leave little."""
    uploads = [toys.upload(torch.full((4,), 1000.0, dtype=torch.float64) + step) for step in (0.0, 0.01)]
    weights = FedAMP(sigma=1e-4).mix(None, uploads, slot=0).figures["weights"]
    assert weights[0, 1].item() == pytest.approx(math.exp(-4) / 2, rel=1e-9)


def test_fedamp_of_one_client_is_the_identity():
    mix = FedAMP(sigma=1.0).mix(None, [toys.upload(0.3)], slot=0)
    assert mix.figures["weights"].tolist() == [[1.0]]
    assert trees.equal(mix.downloads, [{"w": torch.tensor(0.3)}])


def test_fedamp_of_equal_clients_is_uniform():
    assert torch.allclose(
        torch.tensor(rows(FedAMP(sigma=1.0), 0.7, 0.7, 0.7)), torch.full((3, 3), 1 / 3), rtol=0, atol=1e-7
    )


def test_fedamp_of_far_clients_is_the_identity():
    assert rows(FedAMP(sigma=1.0), 0.0, 100.0, -100.0) == torch.eye(3).tolist()


def test_fedamp_without_attention_is_the_identity():
    assert rows(FedAMP(attention=0.0), 0.0, 0.0) == [[1.0, 0.0], [0.0, 1.0]]


def test_fedamp_rows_are_distributions():
    weights = torch.tensor(rows(FedAMP(sigma=0.5), 0.0, 0.1, 0.5, 3.0), dtype=torch.float64)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(1), torch.ones(4, dtype=torch.float64))
    assert weights[0, 1] > weights[0, 2] > weights[0, 3]  # the nearer, the more
