import pytest
import torch

import toys
from acclimate import trees
from acclimate.aggregators.pfedgraph import PFedGraph
from acclimate.simplex import to_simplex


def mixed(aggregator, *values, weights=None, start=None):
    uploads = [toys.upload(torch.tensor(v), w) for v, w in zip(values, weights or [1.0] * len(values), strict=True)]
    begin = [toys.upload(torch.zeros(len(values[0])) if start is None else torch.tensor(start), 0.0)]
    return aggregator.mix(aggregator.init(begin), uploads, slot=0)


def test_pfedgraph_projects_the_cosines_onto_the_simplex():
    """Updates at a right angle, α = 1, p = ½: the point (½ + ½, ½) is too long by ½, so ¼ goes off each: (¾, ¼)."""
    weights = mixed(PFedGraph(alpha=1.0), [1.0, 0.0], [0.0, 2.0]).figures["weights"]
    assert weights.flatten().tolist() == pytest.approx([0.75, 0.25, 0.25, 0.75], abs=1e-12)


def test_pfedgraph_counts_images():
    """Opposite updates, α = 2, p = (¾, ¼): (¾ + ¼, ¼ − ¼) = (1, 0) and (¾ − ¼, ¼ + ¼) = (½, ½)."""
    mix = mixed(PFedGraph(alpha=2.0), [4.0], [-2.0], weights=[3.0, 1.0])
    assert mix.figures["weights"].flatten().tolist() == pytest.approx([1.0, 0.0, 0.5, 0.5], abs=1e-12)
    assert [d["w"].item() for d in mix.downloads] == pytest.approx([4.0, 1.0])


def test_pfedgraph_updates_are_since_the_start():
    """From (1, 1) both move by (0, 1) times something: they are parallel, whatever their own angle."""
    weights = mixed(PFedGraph(), [1.0, 2.0], [1.0, 9.0], start=[1.0, 1.0]).figures["weights"]
    assert weights.flatten().tolist() == pytest.approx([0.5] * 4, abs=1e-12)


def test_pfedgraph_minimises_its_objective():
    """At the minimum the derivative 2 α (w_ij − p_j) − cos_ij is the same wherever w_ij > 0, and no less elsewhere."""
    torch.manual_seed(0)
    updates, alpha = torch.randn(6, 3, dtype=torch.float64), 0.3
    w = mixed(PFedGraph(alpha=alpha), *updates.tolist()).figures["weights"]
    direction = updates.float().double() / updates.float().double().norm(dim=1, keepdim=True)
    slope = 2 * alpha * (w - 1 / 6) - direction @ direction.T
    for row, derivative in zip(w, slope, strict=True):
        least = derivative[row > 0]
        assert least.max() - least.min() < 1e-9
        assert (derivative >= least.min() - 1e-9).all()
    assert (w == 0).any()
    torch.testing.assert_close(w.sum(1), torch.ones(6, dtype=torch.float64), rtol=0, atol=1e-12)


def test_pfedgraph_projection_leaves_distributions_alone():
    point = torch.tensor([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(to_simplex(point), point, rtol=0, atol=1e-15)


def test_pfedgraph_rounds_great_cosines_up_as_the_code():
    """cos = 0.96 counts as 1 with `same: 0.9`, so the two are as good as equal."""
    values = [1.0, 0.0], [0.96, 0.28]
    apart, same = (mixed(PFedGraph(same=s), *values).figures["weights"] for s in (1.0, 0.9))
    assert apart[0, 0] > 0.5
    assert same.flatten().tolist() == pytest.approx([0.5] * 4, abs=1e-6)


def test_pfedgraph_of_one_client_is_the_identity():
    mix = mixed(PFedGraph(), [0.3])
    assert mix.figures["weights"].tolist() == [[1.0]]
    assert trees.equal(mix.downloads, [{"w": torch.tensor([0.3])}])


@pytest.mark.parametrize("value", [0.0, 0.7])
def test_pfedgraph_of_equal_clients_is_uniform(value):
    weights = mixed(PFedGraph(), [value], [value], [value]).figures["weights"]
    torch.testing.assert_close(weights, torch.full((3, 3), 1 / 3, dtype=torch.float64))


def test_pfedgraph_with_much_alpha_is_fedavg():
    weights = mixed(PFedGraph(alpha=1e9), [1.0], [-1.0], weights=[3.0, 1.0]).figures["weights"]
    assert weights.flatten().tolist() == pytest.approx([0.75, 0.25] * 2, abs=1e-8)
