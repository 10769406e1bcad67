import math

import pytest
import torch
from scipy import integrate, stats

import battery
import toys
from acclimate import trees
from acclimate.errors import ConfigError
from acclimate.experiment.catalog import TRAINING
from acclimate.experiment.reader import parse
from acclimate.privacy import unit_noise
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import FedAvg
from acclimate.training.fedper import FedPer
from acclimate.training.private import Private, clipped, hidden
from acclimate.training.scaffold import Scaffold
from flower.inside import Inside
from flower.test_on_line import on_nodes

ONE_STEP = FedAvg(LocalSGD(lr=1.0, epochs=1))


def one_round(phase):
    return toys.play(phase, [toys.client(toys.Fixed([1.0], [0]))])


# ---- clipping ----


def test_reply_is_no_further_than_the_norm():
    """x = 1, y = 0, lr 1 from w = 0: w = (½, −½), √½ away. At most ½ away: ½ · (½, −½) / √½ = (√2/4, −√2/4)."""
    (w, _), states, replies = one_round(Private(norm=0.5, of=ONE_STEP))
    assert w["1.weight"].flatten().tolist() == pytest.approx([math.sqrt(2) / 4, -math.sqrt(2) / 4], abs=1e-6)
    assert states[0].replies == 1
    assert replies[0].metrics["loss"] == pytest.approx(math.log(2), abs=1e-6)  # clipping alone hides nothing


def test_norm_is_over_all_numbers_together_and_counters_do_not_count():
    sent = {"a": torch.zeros(2), "b": torch.zeros(1, 1), "n": torch.tensor(3)}
    near = clipped({"a": torch.tensor([2.0, 4.0]), "b": torch.tensor([[4.0]]), "n": torch.tensor(90)}, sent, 3.0)
    assert torch.cat([near["a"], near["b"][0]]).tolist() == [1.0, 2.0, 2.0]  # ‖(2, 4, 4)‖ = 6
    assert near["n"] == 90


def test_phase_that_nobody_is_clipped_in_equals_the_one_inside():
    plain = battery.run_algorithm(FedAvg(), rounds=2, cohort=3)
    wide = battery.run_algorithm(Private(norm=1e9), rounds=2, cohort=3)
    assert trees.equal(plain.server, wide.server)


# ---- noise ----


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-5), (8.0, 1e-6), (50.0, 0.01)])
def test_noise_is_the_least_that_is_private(epsilon, delta):
    """δ = ∫ max(0, p(y) − e^ε q(y)) dy for two Gaussians one apart: the definition, by numerical integration."""

    def leak(sigma):
        p, q = stats.norm(0, sigma), stats.norm(1, sigma)
        edge = 0.5 - sigma**2 * epsilon  # below it p > e^ε q
        return integrate.quad(lambda y: p.pdf(y) - math.exp(epsilon) * q.pdf(y), edge - 40 * sigma, edge, limit=500)[0]

    sigma = unit_noise(epsilon, delta)
    assert leak(sigma) == pytest.approx(delta, rel=1e-3)
    assert leak(0.99 * sigma) > delta


def test_huge_epsilon_is_no_overflow():
    assert 0 < unit_noise(1e5, 1e-5) < unit_noise(1e3, 1e-5)


def test_every_number_has_the_noise_of_all_replies_together():
    """σ = σ(ε, δ) · 2 C · √T; with ε = 1, δ = 1e-5, C = ½ and T = 4: 3.7306 · 1 · 2."""
    phase = Private(norm=0.5, epsilon=1.0, delta=1e-5, replies=4)
    assert phase.sigma == pytest.approx(2 * 3.7306, rel=1e-4)
    sent = {"w": torch.zeros(40_000), "n": torch.tensor(1)}
    noisy = hidden(
        {"w": torch.zeros(40_000), "n": torch.tensor(7)}, sent, phase.sigma, torch.Generator().manual_seed(1)
    )
    assert noisy["w"].std().item() == pytest.approx(phase.sigma, rel=0.02)
    assert noisy["w"].mean().item() == pytest.approx(0, abs=0.2)
    assert noisy["n"] == 1  # a counter would tell how many batches a client has


def test_no_variance_falls_below_zero():
    sent = {"bn.running_var": torch.ones(1000), "bn.running_mean": torch.ones(1000)}
    noisy = hidden(sent, sent, 5.0, torch.Generator().manual_seed(1))
    assert noisy["bn.running_var"].min() == 0
    assert noisy["bn.running_mean"].min() < 0


def test_neither_loss_nor_number_of_examples_leaves_a_client():
    phase = Private(norm=0.5, epsilon=1.0, replies=1, of=ONE_STEP)
    _, _, replies = toys.play(phase, [toys.client(toys.Fixed([1.0, 1.0], [0, 0]))])
    assert (replies[0].weight, replies[0].metrics) == (1.0, {})


def test_client_sends_no_more_replies_than_epsilon_is_for():
    phase = Private(epsilon=1.0, replies=2)
    battery.run_algorithm(phase, rounds=2, cohort=3)
    with pytest.raises(ConfigError, match="has sent the 2 replies that epsilon is for"):
        battery.run_algorithm(phase, rounds=3, cohort="all")


def test_what_stays_on_a_client_has_no_noise():
    def heads(phase):
        outcome = battery.run_algorithm(phase, rounds=1, cohort="all")
        return [outcome.checkpoint.client(id) for id in battery.population().source]

    plain, noisy = heads(FedPer()), heads(Private(epsilon=1.0, replies=1, of=FedPer()))
    assert all(trees.equal(trees.load(a), trees.load(b).of) for a, b in zip(plain, noisy, strict=True))


# ---- on nodes ----


def private(name, **options):
    systems = [{"name": "one", "phases": [{"name": "private", "rounds": 2, **options}], "adapter": "none"}]
    given = battery.tiny(name=name, systems=systems, phases=[])
    given["scenario"]["new"] = False
    return parse(given)


def replies_of(line):
    answers = [trees.load(answer.blobs["records"]) for kind, _, _, answer in line.letters if kind == "train"]
    return [one.result.reply.update for many in answers for one in many]


def test_server_that_knows_the_seed_cannot_draw_a_nodes_noise_again(tmp_path):
    chosen = private("hidden", epsilon=5.0, replies=2)
    first, second = Inside(tmp_path / "a"), Inside(tmp_path / "b")
    on_nodes(tmp_path / "runs-a", chosen, first)
    on_nodes(tmp_path / "runs-b", chosen, second)
    one, other = replies_of(first)[0], replies_of(second)[0]
    assert not any(torch.equal(one[name], other[name]) for name in one if one[name].is_floating_point())
    assert (tmp_path / "a" / "100" / "secret").stat().st_mode & 0o077 == 0
    again = Inside(tmp_path / "a")  # the same nodes, asked again from the beginning: nothing new is said
    on_nodes(tmp_path / "runs-c", chosen, again)
    assert trees.equal(replies_of(again)[0], one)


def test_two_experiments_on_the_same_data_are_not_hidden_by_the_same_noise(tmp_path):
    """Else the difference of two replies to the same first model would give the noise, and with it the reply."""
    lines = []
    for epsilon in (5.0, 10.0):
        lines.append(Inside(tmp_path))  # the same nodes
        on_nodes(tmp_path / f"runs-{epsilon}", private("hidden", epsilon=epsilon, replies=2), lines[-1])
    sigmas = [Private(epsilon=epsilon, replies=2).sigma for epsilon in (5.0, 10.0)]
    flat = [torch.cat([t.double().flatten() for t in replies_of(line)[0].values()]) for line in lines]
    noises = torch.stack([(x - x.mean()) / sigma for x, sigma in zip(flat, sigmas, strict=True)])
    assert abs(torch.corrcoef(noises)[0, 1]) < 0.1


def test_clipping_is_the_same_on_nodes_as_here(tmp_path):
    chosen = private("clipped", norm=0.1)
    one, other = Inside(tmp_path / "a"), Inside(tmp_path / "b")
    assert on_nodes(tmp_path / "runs-a", chosen, one)[0] == on_nodes(tmp_path / "runs-b", chosen, other)[0]


# ---- mistakes ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 1.0}, "say how many these are at most"),
        ({"of": Scaffold()}, "replies of Scaffold are not the model it was sent"),
    ],
)
def test_mistake_is_explained(options, message):
    with pytest.raises(ValueError, match=message):
        Private(**options)


@pytest.mark.parametrize("name", TRAINING)
def test_phase_that_says_it_sends_back_what_it_was_sent_does(name):
    """Clipped to nothing, such a phase stays where it starts; any other is refused."""
    inside = battery.quick(TRAINING[name].load()())
    if not inside.sends_back:
        with pytest.raises(ValueError, match="are not the model it was sent"):
            Private(of=inside)
        return
    held = Private(norm=1e-12, of=inside)
    ends = [battery.run_algorithm(held, rounds=n, known=battery.before(inside.needs), position=1) for n in (1, 2)]
    one, two = (held.expects(held.broadcast(end.server, 0), None) for end in ends)
    assert all(torch.allclose(one[name], two[name], rtol=0, atol=1e-9) for name in one if one[name].is_floating_point())
