import numpy as np
import pytest

import toys
from acclimate.data.partition import (
    apart,
    balanced_dirichlet,
    by_column,
    cut,
    dirichlet,
    distinct_classes,
    draw,
    even_counts,
    iid,
    proportional,
    shards,
    step_counts,
)
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


def check_partition(parts, pool):
    """No row twice, nobody empty, nothing from elsewhere."""
    used = np.concatenate(parts)
    assert len(set(used.tolist())) == len(used)
    assert set(used.tolist()) <= set(pool.tolist())
    assert min(map(len, parts)) > 0


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cifar10_step_2_16", lambda: step_counts(300, 10, 80, 5, "pairs")),
        ("cifar10_stratified", lambda: even_counts(300, 10, 200)),
        ("cifar100_step_2_51", lambda: step_counts(300, 100, 51, 1, "pairs")),
        ("digits_step_2_16_743perclass", lambda: proportional(step_counts(10, 10, 16, 1, "pairs"), [743] * 10)),
        ("pacs_step_2_16_200perclass", lambda: proportional(step_counts(7, 7, 16, 1, "pairs"), [200] * 7)),
    ],
)
def test_counts_agree_with_golden_vectors(name, expected):
    golden = toys.golden("atp/partition_counts.npz")[name]
    assert np.array_equal(expected(), golden)


def test_step_counts_of_the_code_give_one_class_twice_to_some():
    """All 100 ordered pairs three times: 10 pairs (c, c), so 30 clients with 5 + 2 · 75 = 155 images of one class."""
    counts = step_counts(300, 10, 80, 5, "pairs")
    assert (counts == 155).sum() == 30
    assert set(counts.sum(1).tolist()) == {200}


def test_proportional_uses_up_everything():
    counts = proportional(np.array([[16, 1], [1, 16], [1, 1]]), [100, 7])
    assert counts.sum(0).tolist() == [100, 7]


@pytest.fixture
def balanced():
    labels = np.repeat(np.arange(10), 60)
    return labels, np.arange(600)


def test_iid_parts_are_equal(balanced):
    parts = iid(balanced[1], 7, np.random.default_rng(0))
    check_partition(parts, balanced[1])
    assert {len(part) for part in parts} == {85, 86}


def test_shards_give_at_most_two_classes(balanced):
    labels, pool = balanced
    parts = shards(labels, pool, 20, np.random.default_rng(0))
    check_partition(parts, pool)
    assert max(len(set(labels[part])) for part in parts) <= 2
    assert {len(part) for part in parts} == {30}


def test_distinct_classes_differ(balanced):
    labels, pool = balanced
    parts = distinct_classes(labels, pool, 20, 10, np.random.default_rng(0))
    check_partition(parts, pool)
    assert {len(set(labels[part])) for part in parts} == {2}
    assert {len(part) for part in parts} == {30}
    assert len({tuple(sorted(set(labels[part].tolist()))) for part in parts}) > 10  # pairs vary


def test_distinct_classes_that_cannot_be_even_say_what_would(balanced):
    with pytest.raises(ConfigError, match="a multiple of 10"):
        distinct_classes(*balanced, 7, 10, np.random.default_rng(0))


@pytest.mark.parametrize("alpha", [0.1, 1.0, 100.0])
def test_dirichlet_is_uneven_as_alpha_says(balanced, alpha):
    labels, pool = balanced
    parts = dirichlet(labels, pool, 10, 10, alpha, np.random.default_rng(0))
    check_partition(parts, pool)
    largest = np.mean([np.bincount(labels[part]).max() / len(part) for part in parts])
    assert (largest > 0.4) == (alpha < 1)
    assert (largest < 0.2) == (alpha > 10)


def test_dirichlet_that_leaves_somebody_empty_is_an_error_not_a_loop(balanced):
    with pytest.raises(ConfigError, match="larger alpha, fewer clients"):
        dirichlet(*balanced, 100, 10, 0.001, np.random.default_rng(0))


@pytest.mark.parametrize("clients", [5, 10, 25])
def test_balanced_dirichlet_keeps_sizes_near_each_other(clients):
    labels, pool = np.repeat(np.arange(10), 600), np.arange(6000)
    parts = balanced_dirichlet(labels, pool, clients, 10, 0.1, np.random.default_rng(0))
    check_partition(parts, pool)
    assert len(parts) == clients
    assert min(map(len, parts)) >= 0.5 * 6000 / clients
    largest = np.mean([np.bincount(labels[part]).max() / len(part) for part in parts])
    assert largest > 0.35


def test_by_column_gives_everybody_their_own():
    parts = by_column(np.array([3, 1, 3, 2]), np.array([0, 2, 3]))
    assert {k: v.tolist() for k, v in parts.items()} == {2: [3], 3: [0, 2]}


@pytest.mark.parametrize(
    ("length", "share", "sizes"), [(10, 0.2, (8, 2)), (2, 0.01, (1, 1)), (5, 0.0, (5, 0)), (1, 0.2, (1, 0))]
)
def test_cut_leaves_neither_part_empty(length, share, sizes):
    assert tuple(map(len, cut(np.arange(length), share))) == sizes


def test_apart_separates_no_group():
    rng = np.random.default_rng(0)
    groups, rows = rng.integers(0, 40, 200), rng.permutation(200)
    parts = apart(rows, [50, 120], groups)
    assert sorted(np.concatenate(parts).tolist()) == list(range(200))
    kinds = [set(groups[part]) for part in parts]
    assert not (kinds[0] & kinds[1] or kinds[1] & kinds[2] or kinds[0] & kinds[2])
    assert [len(part) for part in parts] == pytest.approx([50, 70, 80], abs=8)


def test_apart_of_rows_that_stand_alone_is_a_plain_cut():
    rows = np.array([4, 2, 0, 3, 1])
    assert [part.tolist() for part in apart(rows, [0, 3], np.arange(5))] == [[], [4, 2, 0], [3, 1]]


@pytest.mark.parametrize("partition", [iid, lambda pool, clients, rng: shards(np.zeros(9, int), pool, clients, rng)])
def test_more_clients_than_images_is_an_error(partition):
    with pytest.raises(ConfigError, match="fewer clients"):
        partition(np.arange(9), 10, np.random.default_rng(0))
