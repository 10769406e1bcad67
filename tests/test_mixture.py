"""The classes of a stream, from how a model sees it on average."""

import torch

from acclimate.mixture import Answers


def test_shares_by_hand():
    """Features (2, 0) of the first class and (0, 2) of the second, four each and without spread. A mean of (1.5, 0.5)
    is three quarters of the first and a quarter of the second.
    """
    features, y = torch.tensor([[2.0, 0.0], [0.0, 2.0]]).repeat(4, 1), torch.tensor([0, 1]).repeat(4)
    known = Answers.to(features, y, 2).classes()
    shares = known.shares(torch.tensor([1.5, 0.5]).double())
    torch.testing.assert_close(shares, torch.tensor([0.75, 0.25]).double(), atol=1e-6, rtol=0)


def test_features_count_by_their_spread_within_a_class():
    """Two classes at (0, 0) and (1, 1), where the second feature has a variance of 1 within a class and the first 0.
    With a floor of a tenth of the mean variance, 0.05, weights are 1 / 0.05 and 1 / 1.05. A mean of (0, 1) has the
    share s of the second class that makes (0 - s)² / 0.05 + (1 - s)² / 1.05 least: (1 / 1.05) / (1 / 0.05 + 1 / 1.05).
    """
    features = torch.tensor([[0.0, -1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 2.0]])
    known = Answers.to(features, torch.tensor([0, 0, 1, 1]), 2).classes()
    shares = known.shares(torch.tensor([0.0, 1.0]).double())
    second = (1 / 1.05) / (1 / 0.05 + 1 / 1.05)
    torch.testing.assert_close(shares, torch.tensor([1 - second, second]).double(), atol=1e-6, rtol=0)


def noisy(classes=5, examples=400, width=20, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(examples) % classes
    means = 3 * torch.randn(classes, width, generator=generator) + 10
    return torch.randn(examples, width, generator=generator) + means[y], y


def test_shares_of_any_mixture_are_found_again():
    features, y = noisy()
    answers = Answers.to(features, y, 5)
    shares = torch.tensor([0.5, 0.3, 0.2, 0.0, 0.0]).double()
    mean, found = shares @ (answers.features / answers.counts[:, None]), None
    for _ in range(5):  # each begins where the last one ended
        found = answers.classes().shares(mean, found)
    torch.testing.assert_close(found, shares, atol=1e-4, rtol=0)


def test_answers_add_up_over_clients():
    features, y = noisy()
    parts = Answers.to(features[:150], y[:150], 5).plus(Answers.to(features[150:], y[150:], 5))
    parts = parts.plus(Answers.none(5, 20))
    for one, other in zip(parts, Answers.to(features, y, 5), strict=True):
        torch.testing.assert_close(one, other)


def test_a_class_that_nobody_has_seen_has_no_share():
    features, y = noisy()
    seen = y != 2
    shares = Answers.to(features[seen], y[seen], 5).classes().shares(features.double().mean(0))
    assert shares[2] == 0
    torch.testing.assert_close(shares.sum(), torch.tensor(1.0).double())
    assert Answers.none(3, 4).classes() is None


def test_a_common_offset_of_features_changes_nothing():
    features, y = noisy()
    moved, mean = features + 7.0, features[:100].double().mean(0)
    one, other = Answers.to(features, y, 5).classes(), Answers.to(moved, y, 5).classes()
    torch.testing.assert_close(one.shares(mean), other.shares(mean + 7.0), atol=1e-4, rtol=0)


def test_a_model_that_sees_all_alike_tells_nothing():
    features, y = torch.zeros(8, 3), torch.arange(8) % 4
    assert Answers.to(features, y, 4).classes().shares(torch.zeros(3).double()).tolist() == [0.25] * 4
