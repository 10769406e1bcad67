import numpy as np

from acclimate.data.dataset import Dataset
from acclimate.data.twins import twins
from acclimate.examples import Images


def dataset(pixels, **columns):
    images = Images(np.array(pixels, dtype=np.uint8).reshape(-1, 1, 1, 1))
    labels = np.zeros(len(pixels), dtype=np.int64)
    return Dataset("toy", images, labels, 2, (0.5,), (0.5,), "", {k: np.array(v) for k, v in columns.items()})


def together(found):
    """Which rows have a number in common."""
    return sorted(np.flatnonzero(found == n).tolist() for n in set(found.tolist()))


def test_twins_without_a_split_are_equal_images():
    assert together(twins(dataset([7, 8, 7, 9]))) == [[0, 2], [1], [3]]


def test_twins_with_a_split_are_what_the_data_set_says():
    assert together(twins(dataset([7, 7, 7], split=[0, 0, 1]))) == [[0], [1], [2]]


def test_twins_share_a_photograph_of_their_split_or_a_font():
    found = twins(dataset([1, 2, 3, 4, 5, 6], split=[0, 0, 1, 1, -1, -1], photo=[5, 5, 5, 6, -1, -1],
                          font=[-1, -1, -1, -1, 5, 5]))  # fmt: skip
    assert together(found) == [[0, 1], [2], [3], [4, 5]]


def test_twins_of_another_domain_are_not_the_same():
    assert together(twins(dataset([7, 7], domain=[0, 1]))) == [[0], [1]]
