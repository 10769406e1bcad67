import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch

import toys
from acclimate.examples import Examples, Images


def test_images_refuse_other_arrays():
    with pytest.raises(ValueError, match=r"images are uint8 \[N, H, W, C\]; found float32 \(2, 8, 8, 1\)"):
        Images(np.zeros((2, 8, 8, 1), dtype=np.float32))
    with pytest.raises(ValueError, match=r"found uint8 \(2, 8, 8\)"):
        Images(np.zeros((2, 8, 8), dtype=np.uint8))


def test_images_have_the_shape_a_model_sees():
    images = Images(np.zeros((5, 4, 6, 3), dtype=np.uint8))
    assert images.shape == (3, 4, 6) and len(images) == 5
    assert images.bytes(torch.tensor([0, 2])).shape == (2, 3, 4, 6)


def test_images_in_a_file_travel_as_their_path(tmp_path):
    path = tmp_path / "images.npy"
    np.save(path, toys.pixels(3))
    sent = pickle.dumps(Images(path))
    assert len(sent) < 1000
    assert torch.equal(pickle.loads(sent).pixels, torch.from_numpy(toys.pixels(3)))


def test_images_in_memory_travel_as_they_are():
    images = pickle.loads(pickle.dumps(Images(toys.pixels(3))))
    assert images.path is None and torch.equal(images.pixels, torch.from_numpy(toys.pixels(3)))


def test_examples_are_floats_of_their_rows():
    """Rows 2 and 0 of pixels 0, 51, 255: 255 / 255 and 0 / 255."""
    images = Images(np.array([0, 51, 255], dtype=np.uint8).reshape(3, 1, 1, 1))
    some = Examples(images, torch.tensor([7, 8]), torch.tensor([2, 0]))
    assert some.x.flatten().tolist() == [1.0, 0.0] and some.x.dtype == torch.float32
    assert some.y.tolist() == [7, 8] and len(some) == 2
    assert Examples(images, torch.tensor([0]), torch.tensor([1])).x.item() == pytest.approx(0.2, abs=1e-7)


def test_examples_leave_the_bytes_as_they_were():
    some = toys.examples(3)
    before = some.images.pixels.clone()
    some.x.zero_()
    assert torch.equal(some.images.pixels, before)


def test_examples_x_is_channels_last_in_memory():
    x = toys.examples(2, channels=3).x
    assert x.shape == (2, 3, 8, 8) and x.is_contiguous(memory_format=torch.channels_last)


def test_take_follows_positions_not_rows():
    images = Images(toys.pixels(5))
    some = Examples(images, torch.tensor([0, 1, 2]), torch.tensor([4, 2, 0]))
    taken = some.take(torch.tensor([2, 0]))
    assert taken.rows.tolist() == [0, 4] and taken.labels.tolist() == [2, 0]


@pytest.mark.parametrize(
    ("count", "size", "expected"),
    [(6, 2, [2, 2, 2]), (7, 3, [3, 4]), (8, 3, [3, 3, 2]), (1, 3, [1]), (3, 1, [1, 2]), (2, 5, [2])],
)
def test_batches_let_a_single_leftover_join(count, size, expected):
    assert [len(y) for _, y in toys.examples(count).batches(size)] == expected


def test_batches_without_a_generator_keep_the_order():
    some = toys.examples(5)
    x, y = (torch.cat(parts) for parts in zip(*some.batches(2), strict=True))
    assert torch.equal(x, some.x) and torch.equal(y, some.y)


def test_batches_are_shuffled_by_the_generator_and_lose_nothing():
    some = toys.examples(9, classes=9)

    def order(seed: int) -> list[int]:
        return torch.cat([y for _, y in some.batches(2, torch.Generator().manual_seed(seed))]).tolist()

    assert order(1) == order(1) != order(2)
    assert sorted(order(1)) == list(range(9)) != order(1)
    for x, y in some.batches(4, torch.Generator().manual_seed(3)):
        assert torch.equal(x, some.take(y).x)  # labels are positions here: images stay with their labels


def test_batches_of_nobody_are_none():
    empty = Examples(
        Images(np.zeros((3, 2, 2, 1), np.uint8)), torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
    )
    assert list(empty.batches(5)) == []


def test_only_who_shuffles_sees_images_augmented():
    some = replace(toys.examples(6), augment=lambda x: 1 - x)
    ((x, _),) = some.batches(6)
    assert torch.equal(x, some.x)
    ((x, y),) = some.batches(6, torch.Generator().manual_seed(1))
    ((plain, labels),) = replace(some, augment=None).batches(6, torch.Generator().manual_seed(1))
    assert torch.equal(x, 1 - plain)
    assert torch.equal(y, labels)
