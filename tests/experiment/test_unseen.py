import numpy as np
import pytest

import toys
from acclimate.data.dataset import Dataset
from acclimate.data.image_shifts import Noise
from acclimate.errors import ConfigError
from acclimate.examples import Images
from acclimate.experiment.unseen import unseen, without
from acclimate.scenarios.population import Blend, Holding, Plan, StreamPlan
from acclimate.scenarios.twofold import Twofold


def rows(*numbers):
    return np.array(numbers, dtype=np.int64)


def plan(trained, validation, segments, digest="one"):
    images = Images(toys.pixels(20))
    dataset = Dataset("toy", images, np.arange(20) % 2, 2, (0.5,), (0.25,), digest)
    source = {0: (Holding(rows(*trained)), Holding(rows(*validation)))}
    return Plan(dataset, source, [StreamPlan(k, "test", [segment]) for k, segment in enumerate(segments, 1)])


def test_without_leaves_out_what_was_trained_on_and_streams_of_nothing_else():
    trained = plan([0, 1, 2], [3], [])
    tested = plan([7], [8], [Holding(rows(4, 1, 3), Noise(0.1)), Holding(rows(2, 0))])
    (stream,) = without(tested, trained).streams
    assert stream.client == 1
    assert stream.segments[0].rows.tolist() == [4, 3]  # 3 is a validation image
    assert stream.segments[0].shift == Noise(0.1)


def test_without_keeps_the_order_of_a_blend():
    """Rows 4, 1, 5, 3 met in the order 3, 4, 1, 5: without 1 that is 3, 4, 5."""
    blend = Blend([Holding(rows(4, 1), Noise(0.1)), Holding(rows(5, 3))], rows(3, 0, 1, 2), "mix")
    (stream,) = without(plan([7], [8], [blend]), plan([1], [2], [])).streams
    (rest,) = stream.segments
    assert np.concatenate([part.rows for part in rest.parts])[rest.order].tolist() == [3, 4, 5]


def test_without_touches_nothing_of_another_data_set():
    tested = plan([7], [8], [Holding(rows(0, 1))])
    assert without(tested, plan([0, 1], [2], [], digest="other")) is tested


def test_without_anything_left_is_an_error():
    with pytest.raises(ConfigError, match="every image of its streams was trained on"):
        without(plan([7], [8], [Holding(rows(0, 1))]), plan([0, 1], [2], []))


def test_unseen_population_shares_no_image_with_training_of_another_partition():
    options = {"size": 18, "source_clients": 3, "per_source": 300, "test_clients": 3, "major": 40, "minor": 5}
    trained, tested = Twofold(**options), Twofold(**options, partition_seed=9)
    used = set(np.concatenate([train.rows for train, _ in trained.plan(0).source.values()]).tolist())
    met = [h.rows.tolist() for s in tested.plan(9).streams for h in s.segments]
    assert any(used & set(one) for one in met)
    left = unseen(tested, trained, seed=0)
    expected = [len(set(one) - used) for one in met]
    assert [sum(len(held.rows) for _, held in s.segments) for s in left.streams] == [n for n in expected if n]


def test_unseen_population_of_the_same_partition_is_whole():
    options = {"size": 18, "source_clients": 3, "per_source": 30, "test_clients": 3, "major": 6, "minor": 1}
    tested = Twofold(**options, noise=0.1)
    assert unseen(tested, Twofold(**options), seed=2).digest == tested.build(2).digest
