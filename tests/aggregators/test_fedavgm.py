import pytest
import torch

import battery
import toys
from acclimate import trees
from acclimate.aggregators.fedavg import FedAvg
from acclimate.aggregators.fedavgm import PROBABILITIES, FedAvgM
from acclimate.experiment.catalog import ADAPTERS


def test_fedavgm_keeps_part_of_its_velocity():
    """From 1, β = ½, uploads 0 and then −1 on average.

    v = 1 − 0 = 1, w = 1 − 1 = 0; v = ½ · 1 + (0 + 1) = 1.5, w = 0 − 1.5.
    """
    aggregator = FedAvgM(beta=0.5)
    first = aggregator.mix(aggregator.init([toys.upload(1.0, 0.0)]), [toys.upload(-1.0), toys.upload(1.0)], 0)
    assert [d["w"].item() for d in first.downloads] == [0.0, 0.0]
    second = aggregator.mix(first.state, [toys.upload(-3.0), toys.upload(1.0)], 1)
    assert [d["w"].item() for d in second.downloads] == [-1.5, -1.5]


def test_fedavgm_scales_its_step():
    """From 1 towards 0 with lr ½: v = 1, w = ½."""
    aggregator = FedAvgM(lr=0.5)
    mix = aggregator.mix(aggregator.init([toys.upload(1.0)]), [toys.upload(0.0)], 0)
    assert mix.downloads[0]["w"].item() == 0.5


def test_fedavgm_without_momentum_equals_fedavg():
    torch.manual_seed(0)
    aggregator = FedAvgM(beta=0.0)
    state = aggregator.init([toys.upload(torch.zeros(3))])
    for slot in range(3):
        uploads = [toys.upload(torch.randn(3), weight) for weight in (1.0, 2.0)]
        mix = aggregator.mix(state, uploads, slot)
        state = mix.state
        expected = FedAvg().mix(None, uploads, slot).downloads
        torch.testing.assert_close(mix.downloads[1]["w"], expected[1]["w"])


def test_fedavgm_averages_statistics_without_momentum():
    start = {"bn.running_var": torch.tensor([5.0]), "bn.num_batches_tracked": torch.tensor(7)}
    aggregator = FedAvgM(beta=0.9)
    state = aggregator.init([toys.upload(start)])
    for value in (1.0, 3.0):
        now = {"bn.running_var": torch.tensor([value]), "bn.num_batches_tracked": torch.tensor(8)}
        mix = aggregator.mix(state, [toys.upload(now)], 0)
        state = mix.state
        assert trees.equal(mix.downloads, [now])
    assert state.v == {}


def twice_to_a_tenth(name):
    aggregator = FedAvgM()
    state, found = aggregator.init([toys.upload({name: torch.tensor(0.5)})]), []
    for _ in range(2):
        mix = aggregator.mix(state, [toys.upload({name: torch.tensor(0.1)})], 0)
        state = mix.state
        found.append(mix.downloads[0][name].item())
    return found


def test_fedavgm_leaves_probabilities_non_negative():
    """From 0.5 to 0.1 twice: v = 0.4, then 0.9 · 0.4 + 0 = 0.36, which would take 0.1 below zero."""
    assert twice_to_a_tenth("prior") == pytest.approx([0.1, 0.0])


def test_fedavgm_takes_positive_weights_below_zero():
    """As above with a weight, which only happens to be positive: 0.1 − 0.36 = −0.26."""
    assert twice_to_a_tenth("bn.weight") == pytest.approx([0.1, -0.26])


@pytest.mark.parametrize("adapter", ["em", "bbse"])
def test_fedavgm_knows_the_label_distributions_that_adapters_share(adapter):
    made = ADAPTERS[adapter].load()(battery.build()(), **battery.knowledge(adapter)[1])
    made.adapt(torch.rand(5, 1, 18, 18))
    assert set(made.shared()) == {PROBABILITIES}


def test_fedavgm_of_clients_that_never_move_changes_nothing():
    aggregator = FedAvgM()
    state = aggregator.init([toys.upload(0.7), toys.upload(0.7)])
    for slot in range(3):
        mix = aggregator.mix(state, [toys.upload(0.7), toys.upload(0.7)], slot)
        state = mix.state
        assert trees.equal(mix.downloads, [{"w": torch.tensor(0.7)}] * 2)


def test_fedavgm_of_one_client_without_momentum_is_the_identity():
    aggregator = FedAvgM(beta=0.0)
    mix = aggregator.mix(aggregator.init([toys.upload(2.0)]), [toys.upload(0.25)], 0)
    assert mix.downloads[0]["w"].item() == 0.25
