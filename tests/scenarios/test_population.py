import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

import toys
from acclimate.data.dataset import Dataset
from acclimate.data.image_shifts import Brightness, Contrast, Noise
from acclimate.examples import Images
from acclimate.scenarios.population import Held, Holding, Plan, Slot, Stream, StreamPlan, realise

DARK, NOISE = Brightness(-0.2), Noise(0.1)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCLIMATE_CACHE", str(tmp_path))
    return tmp_path / "images"


def rows(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def dataset() -> Dataset:
    labels = np.arange(12, dtype=np.int64) % 3
    return Dataset("toy", Images(toys.pixels(12)), labels, 3, (0.5,), (0.25,), digest="toy-12")


def plan() -> Plan:
    source = {0: (Holding(rows(4, 1)), Holding(rows(2), DARK)), 5: (Holding(rows(3), NOISE), Holding(rows()))}
    stream = StreamPlan(9, "drift", [Holding(rows(7, 6, 1), DARK), Holding(rows(8)), Holding(rows(1, 0), NOISE)])
    return Plan(dataset(), source, [stream])


def changed(shift, row: int, seed: int) -> torch.Tensor:
    return shift(dataset().images.bytes(torch.tensor([row])), [row], seed)[0]


def test_realise_points_everybody_at_their_images():
    population = realise(plan(), seed=4)
    train, check = (population.examples(held) for held in population.source[0])
    assert train.rows.tolist() == [4, 1] and train.y.tolist() == [1, 1]
    assert torch.equal(train.images.bytes(train.rows), dataset().images.bytes(torch.tensor([4, 1])))
    assert check.y.tolist() == [2]
    assert torch.equal(check.images.bytes(check.rows)[0], changed(DARK, 2, 4))


def test_realise_keeps_order_labels_and_shifts_of_a_stream():
    population = realise(plan(), seed=4)
    (stream,) = population.streams
    assert (stream.client, stream.name) == (9, "drift")
    expected = [("brightness -0.2", [7, 6, 1], DARK), ("clean", [8], None), ("noise 0.1", [1, 0], NOISE)]
    for (name, held), (expected_name, originals, shift) in zip(stream.segments, expected, strict=True):
        found = population.examples(held)
        assert name == expected_name
        assert found.y.tolist() == [row % 3 for row in originals]
        for pixels, row in zip(found.images.bytes(found.rows), originals, strict=True):
            clean = dataset().images.bytes(torch.tensor([row]))[0]
            assert torch.equal(pixels, clean if shift is None else changed(shift, row, 4))


def test_realise_computes_shifted_images_once(cache, monkeypatch):
    first = realise(plan(), seed=4)
    (path,) = cache.glob("*.npy")
    assert path.name.startswith("toy-shifted-")

    def fail(self, images, ids, seed):
        raise AssertionError("computed again")

    monkeypatch.setattr(Brightness, "__call__", fail)
    again = realise(plan(), seed=4)
    assert torch.equal(again.pools[1][0].pixels, first.pools[1][0].pixels)
    assert len(again.pools[1][0]) == 4 + 3  # dark: 1, 2, 6, 7; noise: 0, 1, 3
    monkeypatch.undo()


def test_realise_without_shifts_needs_no_file(cache):
    population = realise(Plan(dataset(), {0: (Holding(rows(0)), Holding(rows(1)))}, []), seed=0)
    assert len(population.pools) == 1 and not cache.exists()


def test_realise_tells_shifts_of_equal_options_apart():
    streams = [
        StreamPlan(k, "s", [Holding(rows(3), shift)]) for k, shift in enumerate([Brightness(0.5), Contrast(0.5)])
    ]
    population = realise(Plan(dataset(), {}, streams), seed=0)
    for stream, shift in zip(population.streams, [Brightness(0.5), Contrast(0.5)], strict=True):
        found = population.examples(stream.segments[0][1])
        assert torch.equal(found.images.bytes(found.rows)[0], changed(shift, 3, 0))


def test_digest_tells_populations_apart():
    base = plan()
    others = [
        replace(base, source={0: base.source[5], 5: base.source[0]}),
        replace(base, source={0: base.source[0]}),
        replace(base, source={0: base.source[0][::-1], 5: base.source[5]}),
        replace(base, public=base.source[0][0]),
        replace(base, dataset=replace(base.dataset, digest="toy-13")),
    ]
    digests = [realise(one, seed=4).digest for one in (base, *others)] + [realise(base, seed=5).digest]
    assert len(set(digests)) == len(digests) == 7
    assert realise(plan(), seed=4).digest == digests[0]


def test_digest_is_of_what_phases_can_see():
    """Other tests share what was trained; so do other seeds where training images are clean."""
    base = plan()
    other = replace(base, streams=[base.streams[0]._replace(segments=base.streams[0].segments[::-1])])
    assert realise(other, seed=4).digest == realise(base, seed=4).digest
    clean = replace(base, source={0: (Holding(rows(0, 1)), Holding(rows(2)))})
    assert realise(clean, seed=4).digest == realise(clean, seed=5).digest


def test_digest_does_not_depend_on_groups():
    grouped = realise(replace(plan(), groups={0: "mnist", 9: "svhn"}), seed=4)
    assert grouped.groups == {0: "mnist", 9: "svhn"}
    assert grouped.digest == realise(plan(), seed=4).digest


def test_seed_changes_what_is_drawn():
    first, second = (realise(plan(), seed).pools[1][0].pixels for seed in (4, 5))
    assert not torch.equal(first, second)


def test_population_is_small_to_send():
    population = realise(plan(), seed=4)
    assert population.shape == (1, 8, 8)
    back = pickle.loads(pickle.dumps(population))
    assert back.pools[1][0].path == population.pools[1][0].path is not None
    assert torch.equal(back.examples(back.source[0][1]).x, population.examples(population.source[0][1]).x)


def test_slots_have_one_shift_each():
    stream = Stream(0, "s", (("a", Held(0, rows(0, 1, 2, 3, 4))), ("b", Held(1, rows(5, 6)))))
    slots = stream.slots(2)
    assert [slot.shift for slot in slots] == ["a", "a", "a", "b"]
    assert [[held.rows.tolist() for held in slot.parts] for slot in slots] == [[[0, 1]], [[2, 3]], [[4]], [[5, 6]]]
    assert [slot.parts[0].pool for slot in slots] == [0, 0, 0, 1]


def test_slots_of_all_are_one():
    segments = (("a", Held(0, rows(0, 1))), ("b", Held(1, rows(2))), ("a", Held(0, rows(3))))
    assert Stream(0, "s", segments).slots("all") == [Slot("a then b", tuple(held for _, held in segments))]


def test_validation_streams_are_those_of_source_clients_with_validation_data():
    streams = realise(plan(), seed=4).validation_streams()
    assert [(stream.client, stream.name, len(stream.slots(20))) for stream in streams] == [(0, "validation", 1)]
