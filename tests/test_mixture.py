"""The classes of a stream, from what a model answers on average."""

import torch

from acclimate.mixture import Answers, centred


def test_shares_by_hand():
    """Answers (2, 0) to the first class and (0, 2) to the second, four each and without spread; centred (1, -1) and
    (-1, 1). Mean logits (1.5, 0.5), centred (0.5, -0.5), are three quarters of the first and a quarter of the second.
    """
    logits, y = torch.tensor([[2.0, 0.0], [0.0, 2.0]]).repeat(4, 1), torch.tensor([0, 1]).repeat(4)
    known = Answers.to(logits, y).classes()
    shares = known.shares(centred(torch.tensor([[1.5, 0.5]])).mean(0))
    torch.testing.assert_close(shares, torch.tensor([0.75, 0.25]).double(), atol=1e-6, rtol=0)


def noisy(classes=5, examples=400, seed=0):
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(examples) % classes
    return torch.randn(examples, classes, generator=generator) + 3 * torch.eye(classes)[y], y


def test_shares_of_any_mixture_are_found_again():
    logits, y = noisy()
    answers = Answers.to(logits, y)
    shares = torch.tensor([0.5, 0.3, 0.2, 0.0, 0.0]).double()
    mean, found = shares @ (answers.logits / answers.counts[:, None]), None
    for _ in range(5):  # each begins where the last one ended
        found = answers.classes().shares(mean, found)
    torch.testing.assert_close(found, shares, atol=1e-5, rtol=0)


def test_answers_add_up_over_clients():
    logits, y = noisy()
    parts = Answers.to(logits[:150], y[:150]).plus(Answers.to(logits[150:], y[150:]))
    for one, other in zip(parts, Answers.to(logits, y), strict=True):
        torch.testing.assert_close(one, other)


def test_a_class_that_nobody_has_seen_has_no_share():
    logits, y = noisy()
    seen = y != 2
    shares = Answers.to(logits[seen], y[seen]).classes().shares(centred(logits).mean(0))
    assert shares[2] == 0
    torch.testing.assert_close(shares.sum(), torch.tensor(1.0).double())
    assert Answers.none(3).classes() is None


def test_a_common_offset_of_logits_changes_nothing():
    logits, y = noisy()
    for one, other in zip(Answers.to(logits + torch.randn(len(y), 1), y), Answers.to(logits, y), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=0)
