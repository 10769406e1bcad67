from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import toys
from acclimate import trees
from acclimate.adapters.atp import ATP as Adapter
from acclimate.calibration.atp import ATP
from acclimate.contracts import Client, Replies, Task


def client(net, x, y, algorithm=None):
    """A client whose model is `net` and whose validation batches are these."""
    task = Task(10, (3, 18, 18), (0,), lambda id: net)
    examples = toys.Fixed(x, y)
    known = {"model": {name: tensor.clone() for name, tensor in net.state_dict().items()}}
    return Client(0, examples, examples, task, lambda values: net, torch.Generator(), known)


class Threshold(nn.Module):
    """Two logits (w x, 0): the probability of class 0 is σ(w x)."""

    def __init__(self, w):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([w], dtype=torch.float64))

    def forward(self, x):
        z = x.flatten(1)[:, :1] * self.w
        return torch.cat([z, torch.zeros_like(z)], 1)


def test_atp_moves_the_rate_by_the_inner_product():
    """One image x = 1 of class 0, w = 1, p = σ(1).

    Entropy H(z) with z = w x: dH/dz = −z p (1 − p), so h = +1 · p (1 − p) (from −dH/dw, z = 1).
    At α = 0 the adapted model is the source: dCE/dw = −(1 − p). One step from α = 0 with η = 0.1, numel 1:
    α = 0.1 · h · (1 − p) = 0.1 · p (1 − p)².
    """
    net = Threshold(1.0)
    reply, _ = ATP().client_update(
        {"w": torch.tensor(0.0).double()}, None, client(net, torch.ones(1, 1, 1, 1).double(), [0])
    )
    p = 1 / (1 + np.exp(-1))
    assert reply.update["w"].item() == pytest.approx(0.1 * p * (1 - p) ** 2, abs=1e-12)


def test_atp_divides_by_the_root_of_the_number_of_elements():
    """Two equal weights on two equal inputs double ⟨h, ∇⟩ and divide it by √2 (or by 2)."""

    class Pair(Threshold):
        def __init__(self):
            super().__init__(0.5)
            self.w = nn.Parameter(torch.tensor([0.5, 0.5], dtype=torch.float64))

        def forward(self, x):
            z = (x.flatten(1).expand(-1, 2) * self.w).sum(1, keepdim=True)
            return torch.cat([z, torch.zeros_like(z)], 1)

    start, data = {"w": torch.tensor(0.0).double()}, torch.ones(1, 1, 1, 1).double()
    one = ATP().client_update(start, None, client(Threshold(1.0), data, [0]))[0].update["w"].item()
    root = ATP().client_update(start, None, client(Pair(), data, [0]))[0].update["w"].item()
    plain = ATP(divide="numel").client_update(start, None, client(Pair(), data, [0]))[0].update["w"].item()
    assert root == pytest.approx(one * 2 / 2**0.5, rel=1e-9)
    assert plain == pytest.approx(one, rel=1e-9)


def test_atp_with_a_vanishing_step_leaves_the_rates():
    net = toys_net()
    zero = {name: torch.tensor(0.0) for name in ATP().init(Task(10, (1, 1, 1), (0,), lambda id: net))}
    reply, _ = ATP(lr=1e-30).client_update(zero, None, client(net, torch.rand(4, 1, 2, 2), [0, 1, 0, 1]))
    assert all(abs(rate.item()) < 1e-25 for rate in reply.update.values())


def toys_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 2))


def test_atp_reports_the_mean_loss_over_images():
    """Three images of class 0 with w x = 1, 1 and 2 in batches of two, α held at 0.

    CE = ln(1 + e^(−w x)): 0.3133 twice and 0.1269; over images (0.3133 · 2 + 0.1269) / 3 = 0.2512, over batches 0.2201.
    """
    x = torch.tensor([1.0, 1.0, 2.0]).double().view(3, 1, 1, 1)
    someone = client(Threshold(1.0), x, [0, 0, 0])
    reply, _ = ATP(lr=1e-30, batch_size=2).client_update({"w": torch.tensor(0.0).double()}, None, someone)
    assert reply.metrics["loss"] == pytest.approx(0.2512, abs=1e-4)


def test_atp_leaves_the_model_to_its_owner():
    net = toys_net()
    someone = client(net, torch.rand(4, 1, 2, 2), [0, 1, 0, 1])
    rates = ATP().init(someone.task)
    first = ATP().client_update(rates, None, replace(someone, net=lambda v: net))[0]
    assert "model" not in ATP.exports
    assert set(first.update) == set(rates)
    assert sum(t.numel() for t in first.update.values()) == len(rates)  # d numbers travel, not D


def test_atp_ablations_learn_only_their_modules():
    task = Task(2, (1, 2, 2), (0,), lambda id: toys_net())
    assert set(ATP(modules="stats").init(task)) == {"1.running_mean", "1.running_var"}
    assert "1.running_mean" not in ATP(modules="params").init(task)


def golden_rates(core, values):
    return dict(zip([str(n) for n in core["module_names"]], torch.as_tensor(values).double(), strict=True))


@pytest.mark.parametrize("start", ["zero", "alpha0"])
@pytest.mark.parametrize("batches", [1, 2])
def test_atp_agrees_with_golden_trajectories(start, batches):
    core, inputs = toys.golden("atp/core.npz"), toys.golden("atp/inputs.npz")
    alpha = core["alpha0"] if start == "alpha0" else np.zeros(23)
    x, y = torch.from_numpy(inputs["X0"][: 20 * batches]).double(), inputs["Y0"][: 20 * batches]
    algorithm = ATP(lr=float(core["lr"]))
    reply, _ = algorithm.client_update(golden_rates(core, alpha), None, client(toys.golden_net(), x, y))
    toys.assert_same(torch.stack(list(reply.update.values())), core[f"alpha_after/{start}/{batches}"])
    assert reply.metrics["loss"] == pytest.approx(float(core[f"train_loss/{start}/{batches}"]), abs=1e-9)


def test_atp_agrees_with_golden_server_rounds():
    core, inputs = toys.golden("atp/core.npz"), toys.golden("atp/inputs.npz")
    algorithm, rates = ATP(lr=float(core["lr"])), golden_rates(core, np.zeros(23))
    people = [(inputs["X0"][:60], inputs["Y0"][:60]), (inputs["X1"], inputs["Y1"]), (inputs["X2"], inputs["Y2"])]
    for round in (1, 2):
        replies, each = Replies(), []
        for id, (x, y) in enumerate(people):
            someone = client(toys.golden_net(), torch.from_numpy(x).double(), y)
            reply, _ = algorithm.client_update(rates, None, someone)
            replies.add(id, reply)
            each.append(torch.stack(list(reply.update.values())))
        if round == 1:
            toys.assert_same(torch.stack(each), core["client_alpha_round1"])
        rates = algorithm.server_update(rates, replies)
        toys.assert_same(torch.stack(list(rates.values())), core[f"server_alpha_round{round}"])


# --- the toy of appendix C.5: one batch norm as a classifier, under label shift ---


class OneNorm(nn.Module):
    """Two logits (−z, z) with z = γ (x − μ) / σ + β; μ = 0, σ² = 1.64, γ = 2, β = 0 as after training."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(1)
        with torch.no_grad():
            self.norm.running_var.fill_(1.64)
            self.norm.weight.fill_(2.0)

    def forward(self, x):
        z = self.norm(x.flatten(1))
        return torch.cat([-z, z], 1)


def shifted(positives, number=3000, seed=0):
    """x | y ~ N(±1, 0.8²) with a share of positives."""
    rng = np.random.default_rng(seed)
    y = (rng.random(number) < positives).astype(np.int64)
    x = rng.normal(2.0 * y - 1, 0.8)
    return torch.from_numpy(x).float().view(-1, 1, 1, 1), torch.from_numpy(y)


def accuracy(rate):
    x, y = shifted(5 / 6)
    rates = {"norm.running_mean": torch.tensor(rate), "norm.running_var": torch.tensor(0.0)}
    return (Adapter(OneNorm(), rates=rates)(x).argmax(1) == y).float().mean().item()


def test_atp_toy_negative_rates_help_under_label_shift_and_positive_ones_harm():
    """Without adaptation Φ(1 / 0.8) = 89.4 % are right; the best boundary is x = −0.32 ln 5, not the batch's mean."""
    assert accuracy(0.0) == pytest.approx(0.894, abs=0.015)
    assert accuracy(-0.5) > accuracy(0.0) > accuracy(0.5) > accuracy(1.0)


def test_atp_toy_learns_the_negative_rate():
    algorithm = ATP(modules="stats", lr=0.1, batch_size=100)
    rates = algorithm.init(Task(2, (1, 1, 1), (0, 1), lambda id: OneNorm()))
    people = [client(OneNorm(), *shifted(share, 500, seed)) for seed, share in enumerate((5 / 6, 1 / 6))]
    for _ in range(10):
        replies = Replies()
        for id, someone in enumerate(people):
            replies.add(id, algorithm.client_update(rates, None, replace(someone, net=lambda v: OneNorm()))[0])
        rates = algorithm.server_update(rates, replies)
    assert rates["norm.running_mean"].item() < -0.1


def test_noted_directions_are_used_again_and_change_no_bit():
    known = {"model": {"1.weight": torch.ones(1, 1), "2.weight": torch.tensor([[0.5], [0.0]])}}
    held = toys.client(toys.Fixed([1.0, 2.0], [0, 1]), toys.two_layers, known=known)
    rates = {name: torch.zeros(()) for name in known["model"]}
    for _ in range(2):
        noted, _ = ATP().client_update(rates, None, held)
        fresh, _ = ATP().client_update(rates, None, replace(held, notes={}))
        assert trees.equal(noted.update, fresh.update) and not trees.equal(noted.update, rates)
        rates = noted.update
    held.notes[0] = {name: torch.zeros_like(h) for name, h in held.notes[0].items()}
    still, _ = ATP().client_update(rates, None, held)
    assert trees.equal(still.update, rates)  # directions of zero move nothing: they were not computed anew
