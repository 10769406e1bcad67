import numpy as np
import pytest

from acclimate.data.partition import draw, even_counts, step_counts
from acclimate.errors import ConfigError


@pytest.mark.parametrize(("clients", "classes", "each"), [(2, 3, 4), (7, 10, 68), (3, 5, 2), (4, 2, 6)])
def test_even_counts_favour_nobody(clients, classes, each):
    counts = even_counts(clients, classes, each)
    assert counts.shape == (clients, classes)
    assert counts.sum(1).tolist() == [each] * clients
    assert np.ptp(counts, axis=1).max() <= 1
    assert np.ptp(counts.sum(0)) <= 1


def test_even_counts_go_on_where_the_client_before_stopped():
    """Five images over three classes leave two more: to classes 0, 1, then 2, 0."""
    assert even_counts(2, 3, 5).tolist() == [[2, 2, 1], [2, 1, 2]]


def test_step_counts_have_two_major_classes():
    assert step_counts(3, 4, 5, 1).tolist() == [[5, 5, 1, 1], [1, 5, 5, 1], [1, 1, 5, 5]]


def test_step_counts_of_the_paper_use_every_class_alike():
    """300 clients, 10 classes, 80 / 5: 200 images each, every class major on 60 clients, 6,000 images of each."""
    counts = step_counts(300, 10, 80, 5)
    assert set(counts.sum(1).tolist()) == {200}
    assert ((counts == 80).sum(1) == 2).all()
    assert (counts == 80).sum(0).tolist() == [60] * 10
    assert counts.sum(0).tolist() == [6000] * 10
    pairs = {tuple(np.flatnonzero(row == 80).tolist()) for row in counts}
    assert len(pairs) == 45  # all of them


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_step_counts_majors_are_distinct(classes):
    counts = step_counts(5 * classes, classes, 9, 1)
    assert ((counts == 9).sum(1) == 2).all()


def test_draw_gives_the_counts_without_using_a_row_twice():
    labels = np.arange(60) % 3
    pool = np.arange(10, 60)
    counts = np.array([[5, 0, 2], [1, 8, 3]])
    drawn = draw(labels, pool, counts, np.random.default_rng(0))
    assert [np.bincount(labels[rows], minlength=3).tolist() for rows in drawn] == counts.tolist()
    used = np.concatenate(drawn)
    assert len(set(used.tolist())) == len(used) == 19
    assert set(used.tolist()) <= set(pool.tolist())


def test_draw_depends_on_the_generator_only():
    labels, counts = np.arange(60) % 3, np.array([[5, 5, 5]])

    def rows(seed: int) -> list[int]:
        return draw(labels, np.arange(60), counts, np.random.default_rng(seed))[0].tolist()

    assert rows(1) == rows(1) != rows(2)
    assert labels[rows(1)].tolist() != sorted(labels[rows(1)].tolist())  # classes are mixed


def test_draw_of_everything_leaves_nothing():
    labels = np.array([0, 1, 0, 1])
    drawn = draw(labels, np.arange(4), np.array([[1, 1], [1, 1]]), np.random.default_rng(0))
    assert sorted(np.concatenate(drawn).tolist()) == [0, 1, 2, 3]


def test_draw_says_what_is_short_and_what_would_do():
    labels = np.array([0, 0, 0, 0, 1, 1])
    with pytest.raises(ConfigError, match="class 1: 4 asked for, 2 there") as raised:
        draw(labels, np.arange(6), np.array([[1, 2], [1, 2]]), np.random.default_rng(0))
    assert len(raised.value.problems) == 2
    assert "about 50%" in raised.value.problems[1]
