"""Verdicts from differences worked out by hand: with d1, d2 the error is |d1 − d2| / 2."""

import pytest

from acclimate.experiment.published import Claim, Piece, Published
from acclimate.report.claims import difference, verdicts

# Accuracies of two clients of one seed, in %.
FOUND = {
    "none": (50, 60),
    "sure": (60, 72),  # +10, +12 of none: 11 ± 1
    "noisy": (50, 66),  # 0, +6: 3 ± 3
    "close": (50.4, 60.6),  # +0.4, +0.6: 0.5 ± 0.1
}


def clients(values):
    return {(0, client): value / 100 for client, value in enumerate(values)}


def judged(claim, found=FOUND):
    paper = Published(
        "t", "T", "S", {"one": Piece("x"), "two": Piece("x")}, {name: name.upper() for name in found}, claims=[claim]
    )
    return verdicts(paper, {"one": {name: clients(values) for name, values in found.items()}})


def test_difference_pairs_clients_by_seed_and_number():
    """+10 and +20 on the clients of both: 15, and √((25 + 25) / 1) / √2 = 5."""
    a = {(0, 1): 0.6, (0, 2): 0.7, (1, 1): 0.9}
    b = {(0, 2): 0.5, (0, 1): 0.5, (2, 1): 0.1}
    assert difference(a, b) == pytest.approx((15, 5))


@pytest.mark.parametrize(
    ("higher", "lower", "verdict", "d", "error"),
    [
        ("sure", "none", "holds", 11, 1),
        ("none", "sure", "contradicted", -11, 1),
        ("noisy", "none", "within noise", 3, 3),
        ("none", "noisy", "within noise", -3, 3),
        ("none", "none", "within noise", 0, 0),
    ],
)
def test_claim_of_higher_needs_two_standard_errors(higher, lower, verdict, d, error):
    (found,) = judged(Claim(higher=[higher], lower=[lower]))
    assert (found.piece, found.verdict) == ("one", verdict)
    assert found.expected == f"{higher.upper()} above {lower.upper()}"
    assert (found.difference, found.error) == pytest.approx((d, error))


def test_claim_of_several_is_every_pair():
    found = judged(Claim(higher=["sure", "noisy"], lower=["none", "close"]))
    assert [v.expected for v in found] == [
        "SURE above NONE", "SURE above CLOSE", "NOISY above NONE", "NOISY above CLOSE"
    ]  # fmt: skip


def test_claim_of_best_compares_with_the_strongest_other():
    (found,) = judged(Claim(best="sure"))
    assert (found.expected, found.verdict) == ("SURE best (next: NOISY)", "holds")
    (found,) = judged(Claim(best="none"))
    assert (found.expected, found.verdict) == ("NONE best (next: SURE)", "contradicted")


@pytest.mark.parametrize(
    ("pair", "verdict"),
    [
        (("noisy", "none"), "holds: within 2 s.e."),
        (("none", "close"), "holds: below 1 point"),
        (("sure", "none"), "contradicted"),
    ],
)
def test_claim_of_near_says_why_it_holds(pair, verdict):
    (found,) = judged(Claim(near=pair))
    assert (found.expected, found.verdict) == (f"{pair[0].upper()} near {pair[1].upper()}", verdict)


def test_claim_over_one_client_is_never_more_than_noise():
    (found,) = judged(Claim(higher=["sure"], lower=["none"]), {"sure": (90,), "none": (10,)})
    assert found.verdict == "within noise"


def test_claim_about_pieces_that_were_not_run_has_no_verdict_yet():
    assert judged(Claim(piece=["two"], best="sure")) == []
