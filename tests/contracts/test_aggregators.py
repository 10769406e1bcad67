"""What every aggregator of the catalog must do, now and later."""

import pytest
import torch

import battery
from acclimate import trees
from acclimate.contracts import Upload
from acclimate.experiment.catalog import AGGREGATORS


def uploads(number, slot=0):
    torch.manual_seed(number)
    return [
        Upload(id, slot, {"w": torch.randn(3), "v": torch.randn(2, 2)}, torch.randn(4), 5.0 + id)
        for id in range(number)
    ]


@pytest.mark.parametrize("name", AGGREGATORS)
@pytest.mark.parametrize("number", [1, 2, 5])
def test_aggregator_rows_sum_to_one(name, number):
    aggregator = AGGREGATORS[name].load()()
    some = uploads(number)
    mix = aggregator.mix(aggregator.init(some), some, 0)
    assert len(mix.downloads) == number
    for download, upload in zip(mix.downloads, some, strict=True):
        if download is None:  # it was set aside
            continue
        assert {n: t.shape for n, t in download.items()} == {n: t.shape for n, t in upload.params.items()}
    assert trees.finite(list(mix.downloads))
    if "weights" not in mix.figures:  # more than one matrix, or a memory: nothing a matrix could reproduce
        return
    weights = mix.figures["weights"].double()
    assert weights.shape == (number, number)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(1), torch.ones(number, dtype=torch.float64))
    torch.testing.assert_close(
        torch.stack([download["w"] for download in mix.downloads]),
        (weights @ torch.stack([u.params["w"] for u in some]).double()).float(),
    )


@pytest.mark.parametrize("name", AGGREGATORS)
def test_aggregator_takes_few_uploads_or_none(name):
    aggregator = AGGREGATORS[name].load()()
    state = aggregator.init(uploads(4))
    none = aggregator.mix(state, [], 0)
    assert none.downloads == []
    assert len(aggregator.mix(none.state, uploads(4, 1)[1:3], 1).downloads) == 2


@pytest.mark.parametrize("name", AGGREGATORS)
def test_aggregator_state_survives_save_and_load(name):
    aggregator = AGGREGATORS[name].load()()
    state = aggregator.mix(aggregator.init(uploads(3)), uploads(3), 0).state
    again = trees.load(trees.dump(state))
    assert trees.equal(again, state)
    one, two = aggregator.mix(state, uploads(3, 1), 1), aggregator.mix(again, uploads(3, 1), 1)
    assert trees.equal(one.downloads, two.downloads)


@pytest.mark.parametrize("name", AGGREGATORS)
def test_aggregator_leaves_its_uploads_alone(name):
    aggregator, some = AGGREGATORS[name].load()(), uploads(3)
    before = trees.dump(some)
    aggregator.mix(aggregator.init(some), some, 0)
    assert trees.dump(some) == before


@pytest.mark.parametrize("name", AGGREGATORS)
@pytest.mark.parametrize("adapter", ["bn-adapt", "tent", "em"])  # em has nothing to share before its first batch
def test_aggregator_resumed_equals_uninterrupted(name, adapter):
    whole = list(battery.run_test(adapter, name))
    assert len(whole) > 4
    for cut in (1, 3, len(whole) - 1):
        rest = list(battery.run_test(adapter, name, resume=battery.after(whole[:cut])))
        assert battery.scores(whole[:cut] + rest) == battery.scores(whole)


@pytest.mark.parametrize("name", AGGREGATORS)
def test_aggregator_gives_the_same_bits_with_two_workers(name, two_workers):
    two_workers.worked.clear()
    one, two = list(battery.run_test("tent", name)), list(battery.run_test("tent", name, executor=two_workers))
    assert battery.scores(one) == battery.scores(two)
    assert [sorted(c.figures) for c in one] == [sorted(c.figures) for c in two]
    assert len(two_workers.worked) == 2
