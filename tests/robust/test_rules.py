"""Every rule on numbers computed by hand, and where it changes nothing."""

import math

import pytest
import torch

import battery
import toys
from acclimate.aggregators.fedavg import FedAvg as Mean
from acclimate.aggregators.robust import Clipped as ClippedUploads
from acclimate.aggregators.robust import MultiKrum as MultiKrumUploads
from acclimate.aggregators.robust import Trimmed as TrimmedUploads
from acclimate.robust.clipped import Clipped
from acclimate.robust.krum import Krum
from acclimate.robust.median import Median
from acclimate.robust.multi_krum import MultiKrum
from acclimate.robust.reputation import Known, Reputation
from acclimate.robust.trimmed import Trimmed
from acclimate.training import robust
from acclimate.training.fedavg import FedAvg


def judged(rule, *values, memory=None):
    """What becomes of one tensor of each client, how much they count, and the memory."""
    sent = [[torch.tensor(value, dtype=torch.float64)] for value in values]
    result = rule.judge(range(len(values)), sent, memory)
    return [own[0].tolist() for own in result.sent], list(result.counts), result.memory


def test_median_by_hand():
    """Of 1, 9, 2 it is 2; of 1, 2, 4, 9 it is (2 + 4) / 2."""
    assert judged(Median(), [1.0], [9.0], [2.0])[0] == [[2.0]] * 3
    assert judged(Median(), [1.0], [2.0], [4.0], [9.0])[0] == [[3.0]] * 4


def test_trimmed_mean_by_hand():
    """One of five at each end goes: (2 + 3 + 4) / 3 = 3 stands for 1 and for 100; the mean of all is 3."""
    sent, counts, _ = judged(Trimmed(share=0.2), [1.0], [2.0], [100.0], [4.0], [3.0])
    assert sent == [[3.0], [2.0], [3.0], [4.0], [3.0]]
    assert counts == [1.0] * 5


def test_clipping_by_hand():
    """Lengths 5, 1 and 1 from the origin: the median is 1, so (3, 4) becomes (0.6, 0.8); their mean is remembered."""
    origin = [torch.zeros(2, dtype=torch.float64)]
    sent, _, memory = judged(Clipped(), [3.0, 4.0], [0.0, 1.0], [1.0, 0.0], memory=origin)
    torch.testing.assert_close(torch.tensor(sent), torch.tensor([[0.6, 0.8], [0.0, 1.0], [1.0, 0.0]]))
    torch.testing.assert_close(memory[0], torch.tensor([1.6 / 3, 0.6], dtype=torch.float64))


def test_krum_by_hand():
    """K = 4, f = 1: one neighbour counts; scores of 0, 1, 1.5, 10 are 1, 0.25, 0.25, 72.25, so 1 stands for all."""
    sent, counts, _ = judged(Krum(share=0.25), [0.0], [1.0], [1.5], [10.0])
    assert (sent, counts) == ([[1.0]] * 4, [1.0, 1.0, 1.0, 0.0])


def test_multi_krum_by_hand():
    """All but the worst count as they are; with m = 2 the mean of 1 and 1.5 stands for the third."""
    sent, counts, _ = judged(MultiKrum(share=0.25), [0.0], [1.0], [1.5], [10.0])
    assert (sent[:3], counts) == ([[0.0], [1.0], [1.5]], [1.0, 1.0, 1.0, 0.0])
    assert judged(MultiKrum(share=0.25, best=2), [0.0], [1.0], [1.5], [10.0])[0] == [[1.25], [1.0], [1.5], [1.25]]


def test_reputation_by_hand():
    """Updates 1, 1, −1: u_g = 1, cosines 1, 1, −1. With α = 0.95 reputations are 1, 1, 0.9; with α = 0 the third has −1
    and is set aside, and the others count 1 / (2/3) = 1.5."""
    origin = Known([torch.zeros(1, dtype=torch.float64)], {})
    memory = judged(Reputation(), [1.0], [1.0], [-1.0], memory=origin)[2]
    assert [round(memory.reputations[id], 12) for id in range(3)] == [1.0, 1.0, 0.9]
    sent, counts, _ = judged(Reputation(decay=0.0), [1.0], [1.0], [-100.0], memory=origin)
    assert (sent, counts) == ([[1.0], [1.0], [-1.0]], [1.5, 1.5, 0.0])


def test_reputation_is_regained():
    memory = Known([torch.zeros(1, dtype=torch.float64)], {2: -1.0})
    assert judged(Reputation(decay=0.5), [1.0], [1.0], [1.0], memory=memory)[1][2] == 0.0
    later = Known(memory.origin, judged(Reputation(decay=0.5), [1.0], [1.0], [1.0], memory=memory)[2].reputations)
    assert judged(Reputation(decay=0.5), [1.0], [1.0], [1.0], memory=later)[1][2] > 0


RULES = [Median(), Trimmed(), Clipped(), Krum(), MultiKrum(), Reputation()]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_rule_leaves_equal_clients_alone(rule):
    sent, counts, memory = judged(rule, *[[0.1, -3.0]] * 7)
    assert torch.tensor(sent).sub(torch.tensor([0.1, -3.0])).abs().max() < 1e-6
    assert max(counts) > 0 and math.isclose(sum(counts) / len([c for c in counts if c]), max(counts))
    again = judged(rule, *[[0.1, -3.0]] * 7, memory=memory)[0]
    assert torch.tensor(again).sub(torch.tensor([0.1, -3.0])).abs().max() < 1e-6


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
@pytest.mark.parametrize("bad", [1e30, -1e30])
def test_rule_bounds_what_two_of_ten_can_do(rule, bad):
    """The mean of eight honest clients in [1, 2] and two of ±1e30 stays near them; a plain mean is ±2e29."""
    honest = [[1.0 + i / 7] for i in range(8)]
    memory = None
    for _ in range(2):
        sent, counts, memory = judged(rule, *honest, [bad], [bad], memory=memory)
        mean = sum(c * own[0] for c, own in zip(counts, sent, strict=True)) / sum(counts)
        assert 0.5 <= mean <= 2.5


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_rule_takes_one_client_and_counters(rule):
    sent = [[torch.tensor([2.0]), torch.tensor(3)]]
    result = rule.judge([4], sent, None)
    assert [tensor.tolist() for tensor in result.sent[0]] == [[2.0], 3]
    assert [tensor.dtype for tensor in result.sent[0]] == [torch.float32, torch.int64]


@pytest.mark.parametrize(
    "phase", [robust.Trimmed(share=0.0), robust.Clipped(norm=1e9), robust.MultiKrum(share=0.0)], ids=str
)
def test_phase_that_trusts_everybody_equals_the_one_inside(phase):
    plain = battery.run_algorithm(FedAvg(), rounds=2, cohort=3)
    wary = battery.run_algorithm(phase, rounds=2, cohort=3)
    assert {n: t.tolist() for n, t in wary.server.of.w.items()} == {n: t.tolist() for n, t in plain.server.w.items()}


@pytest.mark.parametrize(
    "wary", [TrimmedUploads(share=0.0), ClippedUploads(norm=1e9), MultiKrumUploads(share=0.0)], ids=str
)
def test_aggregator_that_trusts_everybody_equals_the_one_inside(wary):
    some = [toys.upload([1.0, float(k)], weight=k + 1, client=k) for k in range(4)]
    plain = Mean().mix(None, some, 0).downloads
    assert [d["w"].tolist() for d in wary.mix(wary.init(some), some, 0).downloads] == [d["w"].tolist() for d in plain]


def test_aggregator_gives_nothing_to_whom_it_sets_aside():
    some = [toys.upload([1.0 + k / 10], client=k) for k in range(4)] + [toys.upload([1e6], client=4)]
    wary = MultiKrumUploads(share=0.2)
    downloads = wary.mix(wary.init(some), some, 0).downloads
    assert downloads[4] is None
    assert all(abs(d["w"].item() - 1.15) < 1e-6 for d in downloads[:4])


def test_a_phase_that_looks_at_each_reply_is_refused():
    from acclimate.training.odpfl_hn import ODPFLHN

    with pytest.raises(ValueError, match="no mean of replies"):
        robust.Median(of=ODPFLHN())
