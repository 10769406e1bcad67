import math

import pytest
import torch
import torch.nn.functional as F

import toys
from acclimate import params
from acclimate.sgd import Group, LocalSGD

SIGMA = 1 / (1 + math.exp(-1))  # p₀ after the first step, at logits ±½


def fit(local: LocalSGD, x=(1.0,), y=(0,), **more):
    net = toys.logistic()
    done = local.fit(net, toys.Fixed(list(x), list(y)), torch.Generator(), **more)
    return net[1].weight.flatten().tolist(), done


def test_sgd_steps_against_the_gradient():
    """x = 1, y = 0, from 0: gradients −½ and σ(1) − 1; loss ln 2, then −ln σ(1); two steps of lr 1."""
    w, done = fit(LocalSGD(lr=1.0, epochs=2))
    assert w == pytest.approx([1.5 - SIGMA, SIGMA - 1.5], abs=1e-6)
    assert done.steps == 2
    assert done.loss == pytest.approx((math.log(2) - math.log(SIGMA)) / 2, abs=1e-6)


def test_sgd_momentum_adds_to_the_second_step():
    """Velocity −½, then 0.9 · (−½) + σ(1) − 1: w₀ = ½ + 0.45 + 1 − σ(1)."""
    assert fit(LocalSGD(lr=1.0, epochs=2, momentum=0.9))[0][0] == pytest.approx(1.95 - SIGMA, abs=1e-6)


def test_sgd_weight_decay_adds_to_the_second_step():
    """λ = 0.2 at w₀ = ½: gradient 0.1 + σ(1) − 1, so w₀ = ½ − 0.1 + 1 − σ(1)."""
    assert fit(LocalSGD(lr=1.0, epochs=2, weight_decay=0.2))[0][0] == pytest.approx(1.4 - SIGMA, abs=1e-6)


def test_sgd_correction_adds_to_every_gradient():
    """Gradient (−½, ½) plus (2, 0), lr ½: w = (−0.75, −0.25)."""
    w, _ = fit(LocalSGD(lr=0.5), correction={"1.weight": torch.tensor([[2.0], [0.0]])})
    assert w == [-0.75, -0.25]


def test_sgd_loss_is_the_mean_over_examples_not_batches():
    """Batches of 2 and 1 from w = 0 with a tiny rate: every example costs ln 2 of two classes."""
    _, done = fit(LocalSGD(lr=1e-9, batch_size=2), x=(1.0, 1.0, 0.0), y=(0, 1, 0))
    assert done.steps == 2
    assert done.loss == pytest.approx(math.log(2), abs=1e-6)
    _, done = fit(LocalSGD(lr=1.0, batch_size=3), x=(1.0, 1.0, 0.0, 1.0), y=(0, 0, 0, 0))
    # Mean gradient −½ · ⅔, so w₀ = ⅓ and the last example has p₀ = σ(⅔); weights 3 : 1.
    expected = (3 * math.log(2) + math.log(1 + math.exp(-2 / 3))) / 4
    assert done.loss == pytest.approx(expected, abs=1e-6)


def test_sgd_takes_the_loss_from_the_method():
    """Loss 3 + Σ w_c · 2: gradient (2, 2) whatever the batch, so with lr ½ w = (−1, −1); the loss before it is 3."""
    net, seen = toys.logistic(), []

    def loss(x, y):
        seen.append((x.flatten().tolist(), y.tolist()))
        return 3 + 2 * net[1].weight.sum()

    done = LocalSGD(lr=0.5).fit(net, toys.Fixed([1.0], [0]), torch.Generator(), loss)
    assert seen == [([1.0], [0])]
    assert net[1].weight.flatten().tolist() == [-1.0, -1.0]
    assert done == (3.0, 1)


def test_sgd_steps_groups_in_order_each_with_its_own_rate_and_loss():
    """a and b go down a + b + c together, from one pass, at rates 1 and ½; then c goes down c · a, with the new a.

    a = 5 − 1 = 4, b = 5 − ½ = 4.5, and c = 5 − 0.1 · 4 = 4.6; the loss is that of the first group, 15.
    """
    a, b, c = (torch.tensor(5.0, requires_grad=True) for _ in range(3))
    passes = []

    def together(x, y):
        passes.append("together")
        return a + b + c

    def alternately(x, y):
        passes.append("alternately")
        return c * a

    groups = [
        Group({"a": a}, together, lr=1.0),
        Group({"c": c}, alternately, lr=0.1),
        Group({"b": b}, together, lr=0.5),
    ]
    done = LocalSGD().fit(groups, toys.Fixed([1.0], [0]), torch.Generator())
    assert passes == ["together", "alternately"]
    assert [round(t.item(), 6) for t in (a, b, c)] == [4.0, 4.5, 4.6]
    assert done == (15.0, 1)


def test_sgd_counts_steps_over_several_passes_or_part_of_one():
    """Five examples in batches of two (the last one joins the batch before it): two batches a pass."""
    data = toys.examples(5)
    build = toys.build_for(toys.population())
    for steps, epochs in ((1, 1), (3, 1), (4, 9)):
        done = LocalSGD(steps=steps, epochs=epochs, batch_size=2).fit(build(), data, torch.Generator())
        assert done.steps == steps
    net, other = build(), build()
    other.load_state_dict(net.state_dict())
    LocalSGD(steps=4, batch_size=2).fit(net, data, torch.Generator().manual_seed(1))
    LocalSGD(epochs=2, batch_size=2).fit(other, data, torch.Generator().manual_seed(1))
    assert torch.equal(net.head.weight, other.head.weight)


def test_sgd_clips_the_norm_of_a_gradient():
    """Gradient (−½, ½) has norm √½; clipped to 0.1 it is (∓0.1 / √2), so with lr 1 w = ±0.0707."""
    w, _ = fit(LocalSGD(lr=1.0, clip=0.1))
    assert w == pytest.approx([0.1 / math.sqrt(2), -0.1 / math.sqrt(2)], abs=1e-6)
    assert fit(LocalSGD(lr=1.0, clip=10.0))[0] == fit(LocalSGD(lr=1.0))[0]


def test_sgd_rate_falls_with_the_round():
    """lr 1, decay 0.25 every two rounds: ½ in round 1, ¼ in round 2; the gradient is (−½, ½)."""
    local = LocalSGD(lr=1.0, decay=0.25, decay_every=2)
    assert [local.rate(round) for round in range(3)] == [1.0, 0.5, 0.25]
    assert fit(local, round=2)[0] == [0.125, -0.125]


@pytest.mark.parametrize(
    "options", [{}, {"momentum": 0.9}, {"weight_decay": 0.1}, {"momentum": 0.5, "weight_decay": 0.01}]
)
def test_sgd_steps_equal_those_of_torch_to_the_bit(options):
    build, data = toys.build_for(toys.population()), toys.examples(12)
    net, other = build(), build()
    other.load_state_dict(net.state_dict())
    LocalSGD(lr=0.3, batch_size=4, epochs=2, **options).fit(net, data, torch.Generator().manual_seed(1))
    optimizer, rng = torch.optim.SGD(other.parameters(), lr=0.3, **options), torch.Generator().manual_seed(1)
    for _ in range(2):
        for x, y in data.batches(4, rng):
            optimizer.zero_grad()
            F.cross_entropy(other(x), y).backward()
            optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))


def test_sgd_leaves_frozen_tensors_alone():
    net = toys.two_layers()
    net[1].requires_grad_(False)
    before = params.of(net)
    LocalSGD(lr=1.0).fit(net, toys.Fixed([1.0], [0]), torch.Generator(), correction={"2.weight": torch.ones(2, 1)})
    assert torch.equal(net[1].weight, before["1.weight"])
    assert not torch.equal(net[2].weight, before["2.weight"])


@pytest.mark.parametrize(("training", "batches"), [(True, 1), (False, 0)])
def test_sgd_leaves_modes_as_they_are(training, batches):
    """A batch norm in eval mode, as in a frozen encoder, must not move."""
    net = toys.normed().train(training)
    LocalSGD(lr=1.0).fit(net, toys.Fixed([0.0, 2.0], [0, 1]), torch.Generator())
    assert net[1].num_batches_tracked.item() == batches


def test_sgd_shuffles_by_the_generator_given():
    build = toys.build_for(toys.population())
    torch.manual_seed(0)
    start, data = params.of(build()), toys.examples(9)

    def fitted(seed: int) -> torch.Tensor:
        net = params.load(build(), start)
        LocalSGD(batch_size=4).fit(net, data, torch.Generator().manual_seed(seed))
        return net.head.weight

    assert torch.equal(fitted(1), fitted(1))
    assert not torch.equal(fitted(1), fitted(2))


def test_sgd_of_nothing_takes_no_step():
    w, done = fit(LocalSGD(lr=1.0), x=(), y=())
    assert w == [0.0, 0.0] and done == (0.0, 0)
