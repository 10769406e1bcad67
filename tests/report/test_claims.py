"""Verdicts from differences worked out by hand: with d1, d2 the error is |d1 − d2| / 2."""

import pytest

from acclimate.experiment.published import Claim, Piece, Published
from acclimate.report.claims import Scores, difference, verdicts

# Accuracies of two clients of one seed, in %.
FOUND = {
    "none": (50, 60),
    "sure": (60, 72),  # +10, +12 of none: 11 ± 1
    "noisy": (50, 66),  # 0, +6: 3 ± 3
    "close": (50.4, 60.6),  # +0.4, +0.6: 0.5 ± 0.1
}


def clients(values):
    return {(0, client): value / 100 for client, value in enumerate(values)}


def judged(claim, found=FOUND, groups=(), **more):
    """Verdicts in a run with the stream `s`, and others if they are given."""
    paper = Published(
        "t", "T", "S", {"one": Piece("x"), "two": Piece("x")}, {name: name.upper() for name in found}, claims=[claim]
    )
    streams = {
        stream: {name: clients(values) for name, values in systems.items()}
        for stream, systems in {"s": found, **more}.items()
    }
    return verdicts(paper, {"one": Scores(streams, {(0, client): name for client, name in enumerate(groups)})})


TURNED = {"none": (60, 72), "sure": (50, 60), "noisy": (50, 66), "close": (50.4, 60.6)}  # sure 11 ± 1 below none


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


def test_claim_is_judged_on_the_systems_that_were_run():
    assert [v.expected for v in judged(Claim(higher=["sure", "later"], lower=["none", "later"]))] == ["SURE above NONE"]
    assert judged(Claim(best="later")) == judged(Claim(near=("sure", "later"))) == []


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


def test_claim_is_about_every_stream_and_names_it_where_there_are_several():
    (alone,) = judged(Claim(higher=["sure"], lower=["none"]))
    assert (alone.stream, alone.place) == ("", "one")
    found = judged(Claim(higher=["sure"], lower=["none"]), other=TURNED)
    assert [(v.stream, v.place, v.verdict) for v in found] == [
        ("s", "one, s", "holds"), ("other", "one, other", "contradicted")
    ]  # fmt: skip
    assert [v.stream for v in judged(Claim(stream=["other"], best="none"), other=TURNED)] == ["other"]


def test_claim_of_best_finds_the_strongest_other_in_each_stream():
    found = judged(Claim(best="none"), other=TURNED)
    assert [v.expected for v in found] == ["NONE best (next: SURE)", "NONE best (next: NOISY)"]


def test_claim_on_the_mean_takes_the_mean_over_the_streams_that_a_client_has():
    """Client 0: (+10 − 2) / 2 = 4 and client 1, which has no second stream, +12: 8 ± 4. Validation does not count."""
    more = {"other": {"none": (50,), "sure": (48,)}, "validation": {"none": (0, 0), "sure": (99, 99)}}
    (found,) = judged(
        Claim(stream=["mean"], higher=["sure"], lower=["none"]), {k: FOUND[k] for k in ("none", "sure")}, **more
    )
    assert (found.place, found.difference, found.error) == ("one, mean", pytest.approx(8), pytest.approx(4))


def test_claim_about_a_group_is_about_its_clients_only():
    found = {"none": (50, 60, 10), "sure": (60, 72, 0)}
    groups = ("near", "near", "far")
    near, far = judged(Claim(group=["near", "far"], higher=["sure"], lower=["none"]), found, groups)
    assert (near.place, near.verdict, near.difference) == ("one, near", "holds", pytest.approx(11))
    assert (far.place, far.difference) == ("one, far", pytest.approx(-10))


def test_claim_about_a_group_is_silent_in_streams_that_nobody_of_it_meets():
    found = {"none": (50, 60, 10), "sure": (60, 72, 0)}
    other = {"none": (50, 60), "sure": (60, 72)}  # client 2 is not here
    claim = Claim(group=["far"], higher=["sure"], lower=["none"])
    assert [v.stream for v in judged(claim, found, ("near", "near", "far"), other=other)] == ["s"]


def test_systems_that_share_no_client_are_not_compared():
    """One was run with seed 0, the other with seed 1."""
    paper = Published(
        "t", "T", "S", {"one": Piece("x")}, {"a": "A", "b": "B"},
        claims=[Claim(higher=["a"], lower=["b"]), Claim(best="a"), Claim(near=("a", "b"))],
    )  # fmt: skip
    streams = {"s": {"a": {(0, 1): 0.5}, "b": {(1, 1): 0.4}}}
    assert verdicts(paper, {"one": Scores(streams)}) == []


def test_the_next_best_is_the_nearest_on_the_clients_of_both():
    """B's own mean is higher, by a seed that A does not have; on the clients of both C is nearer to A."""
    paper = Published("t", "T", "S", {"one": Piece("x")}, {"a": "A", "b": "B", "c": "C"}, claims=[Claim(best="a")])
    both = {(0, 1): 0.5, (0, 2): 0.7}
    streams = {"s": {"a": both, "b": {(0, 1): 0.3, (0, 2): 0.4, (1, 1): 1.0}, "c": {(0, 1): 0.4, (0, 2): 0.6}}}
    (found,) = verdicts(paper, {"one": Scores(streams)})
    assert found.expected == "A best (next: C)"
