import pytest
import torch

import toys
from acclimate import trees
from acclimate.aggregators.ldawa import LDAWA


def mixed(aggregator, start, *values):
    return aggregator.mix(aggregator.init([toys.upload(start, 0.0)]), [toys.upload(value) for value in values], slot=0)


@pytest.mark.parametrize(("sum_to_one", "expected"), [(True, [1.75, 1.5]), (False, [1.4, 1.2])])
def test_ldawa_weighs_by_the_cosine(sum_to_one, expected):
    """Global (1, 0), clients (1, 0) and (3, 4): δ = 1 and 0.6, weights 0.625 and 0.375, or 0.5 and 0.3."""
    mix = mixed(LDAWA(sum_to_one), torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0]), torch.tensor([3.0, 4.0]))
    assert mix.figures["cosines"].flatten().tolist() == pytest.approx([1.0, 0.6])
    for download in mix.downloads:
        assert download["w"].tolist() == pytest.approx(expected)


def test_ldawa_has_weights_of_its_own_for_each_layer():
    """Layer a is turned by the second client only, layer b by the first only (each to a right angle: δ = 0)."""
    start = {"a": torch.tensor([1.0, 0.0]), "b": torch.tensor([0.0, 1.0])}
    one = {"a": torch.tensor([2.0, 0.0]), "b": torch.tensor([5.0, 0.0])}
    two = {"a": torch.tensor([0.0, 5.0]), "b": torch.tensor([0.0, 3.0])}
    mix = mixed(LDAWA(), start, one, two)
    assert trees.equal(mix.downloads[0], {"a": one["a"], "b": two["b"]})
    assert mix.figures["cosines"].tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_ldawa_measures_from_its_last_model():
    """After a slot the global model is (0, 1): the client that stays there has δ = 1, the other 0."""
    aggregator = LDAWA()
    state = mixed(aggregator, torch.tensor([0.0, 2.0]), torch.tensor([0.0, 1.0])).state
    assert state["w"].tolist() == [0.0, 1.0]
    uploads = [toys.upload(torch.tensor([0.0, 3.0])), toys.upload(torch.tensor([1.0, 0.0]))]
    assert aggregator.mix(state, uploads, 1).downloads[1]["w"].tolist() == [0.0, 3.0]


def test_ldawa_gives_no_weight_to_a_client_that_turned_round():
    mix = mixed(LDAWA(), torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor([-7.0]))
    assert mix.downloads[0]["w"].tolist() == [2.0]


@pytest.mark.parametrize("start", [torch.zeros(2), torch.tensor([-1.0, -1.0])])
def test_ldawa_without_any_angle_is_the_mean(start):
    """A zero global layer, or all clients against it."""
    mix = mixed(LDAWA(), start, torch.tensor([1.0, 1.0]), torch.tensor([3.0, 3.0]))
    assert mix.downloads[0]["w"].tolist() == [2.0, 2.0]


def test_ldawa_counts_numbers_fully():
    mix = mixed(LDAWA(sum_to_one=False), torch.tensor(1.0), torch.tensor(2.0), torch.tensor(-4.0))
    assert mix.downloads[0]["w"].item() == -1.0


def test_ldawa_of_one_client_is_the_identity():
    mix = mixed(LDAWA(), torch.tensor([1.0, 1.0]), torch.tensor([0.3, -0.2]))
    assert mix.downloads[0]["w"].tolist() == pytest.approx([0.3, -0.2])


def test_ldawa_of_equal_clients_changes_nothing():
    w = torch.tensor([0.5, 2.0])
    mix = mixed(LDAWA(), torch.tensor([1.0, 0.0]), w, w, w)
    torch.testing.assert_close(mix.downloads[1]["w"], w)
