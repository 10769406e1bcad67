import math

import numpy as np
import pytest
import torch
from torch import nn

import toys
from acclimate.adapters.btfl import BTFL
from acclimate.beta import by_quadrature, by_trapezoid, expected_share
from acclimate.params import load


def linear(weight):
    """A classifier whose features are the images themselves."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype))
    return load(net, {"1.weight": weight})


def adapter(w_g, w_p, p_l, p_g, h_l, h_g, **options):
    tensor = lambda values: torch.as_tensor(values, dtype=torch.float64)  # noqa: E731
    return BTFL(
        linear(tensor(w_g)),
        head=tensor(w_p),
        densities={"local": tensor(p_l), "global": tensor(p_g)},
        entropies={"local": tensor(h_l), "global": tensor(h_g)},
        **options,
    )


def golden_run(size, *, order="predict", densities="excl", **options):
    """The golden stream in batches: e, prior used, prior after, log predictions of every image."""
    g = toys.golden("btfl/btfl_golden.npz")
    one = adapter(
        g["W_g"], g["W_p"], g["dle_local"][0], g[f"dle_global_{densities}"][0], g["Hbar_l"], g["Hbar_g"], **options
    )
    e, used, after, logits = [], [], [], []
    for x in torch.from_numpy(g["z"]).split(size):
        if order == "update":
            one.adapt(x)
        used += [one.prior.clone()] * len(x)
        logits.append(one(x) if order == "predict" else one.predict(x))
        e.append(one.figures["e"])
        after += [one.prior.clone()] * len(x)
    return g, torch.cat(e), torch.stack(used), torch.stack(after), torch.cat(logits)


def test_btfl_equals_the_golden_vectors_of_the_paper():
    g, e, used, after, logits = golden_run(1)
    toys.assert_same(e, g["recommended_bs1_e"])
    toys.assert_same(used, g["recommended_bs1_ab_used"])
    toys.assert_same(after, g["recommended_bs1_ab_after"])
    toys.assert_same(logits.exp(), g["recommended_bs1_Y"])
    assert (logits.argmax(1).numpy() == g["recommended_bs1_pred"]).all()


@pytest.mark.parametrize("size", [1, 16])
def test_btfl_updated_first_equals_the_golden_vectors(size):
    """As with an aggregator, which adapts before it predicts; the global estimator is that of all clients."""
    g, e, used, after, logits = golden_run(size, order="update", densities="incl")
    toys.assert_same(e, g[f"paper_roles_fixed_bs{size}_e"])
    toys.assert_same(used, g[f"paper_roles_fixed_bs{size}_ab_used"])
    toys.assert_same(after, g[f"paper_roles_fixed_bs{size}_ab_after"])
    assert (logits.argmax(1).numpy() == g[f"paper_roles_fixed_bs{size}_pred"]).all()


@pytest.mark.parametrize(("size", "lam"), [(1, 5), (1, 16), (16, 16)])
def test_btfl_equals_the_golden_vectors_of_the_code(size, lam):
    g, e, used, after, logits = golden_run(size, preset="code", squash=4, lam=lam)
    name = f"bs{size}_kb4_lam{lam}"
    loose = {"rtol": 0, "atol": 1e-7}  # the reference takes some steps in single precision
    torch.testing.assert_close(e, torch.from_numpy(g[f"code_{name}_e"]), **loose)
    torch.testing.assert_close(used, torch.from_numpy(g[f"code_{name}_ab_before"]), **loose)
    torch.testing.assert_close(after, torch.from_numpy(g[f"code_{name}_ab_after"]), **loose)
    assert (logits.argmax(1).numpy() == g[f"code_{name}_pred"]).all()
    if f"code_{name}_logp" in g:
        torch.testing.assert_close(logits, torch.from_numpy(g[f"code_{name}_logp"]), rtol=0, atol=1e-6)


def test_btfl_weight_equals_the_tabulated_integrals():
    g = toys.golden("btfl/btfl_golden.npz")
    table = zip(*(g[f"etab_{name}"].ravel() for name in ("a", "b", "tau", "e")), strict=True)
    for a, b, tau, e in table:
        assert abs(expected_share(a, b, np.array([math.log(tau)]))[0] - e) < 1e-9
        assert abs(by_quadrature(a, b, np.array([math.log(tau)]))[0] - e) < 1e-7


def test_btfl_weight_by_hand():
    """Beta(1, 1), τ = 2: ∫ m / (2 − m) dm = 2 ln 2 − 1; τ = 1/2 is its reflection, 2 − 2 ln 2."""
    found = expected_share(1.0, 1.0, np.log([2.0, 0.5, 1.0]))
    np.testing.assert_allclose(found, [2 * math.log(2) - 1, 2 - 2 * math.log(2), 0.5], atol=1e-14)


@pytest.mark.parametrize(("a", "b"), [(3000.0, 1.0), (400.0, 900.0), (1.0, 20000.0)])
@pytest.mark.parametrize("log_tau", [-800.0, -3.0, 0.0, 2.0, 800.0])
def test_btfl_weight_of_any_prior_is_a_share(a, b, log_tau):
    found = expected_share(a, b, np.array([log_tau]))[0]
    assert 0 <= found <= 1
    assert abs(found - by_quadrature(a, b, np.array([log_tau]))[0]) < 1e-6


def test_btfl_trapezoid_misses_the_ends():
    """A flat prior and τ = 1: the mean over [0.01, 0.99] is 0.49 instead of 0.5."""
    assert by_trapezoid(1.0, 1.0, np.zeros(1), 4.0)[0] == pytest.approx(0.49)


def by_hand(**options):
    """One feature, zero with probability 4/5 here and 1/5 elsewhere; heads (z, 0) here and (0, 0) elsewhere."""
    return adapter([[0.0], [0.0]], [[1.0], [0.0]], [0.8], [0.2], 0.6, 0.5, **options)


def test_btfl_prediction_by_hand():
    """z = 0: ẑ = 0, both heads are unsure, H = ln 2; u_l = e^(1 − 0.6/ln 2), u_g = e^(1 − 0.5/ln 2),
    log τ̂ = u_l ln 0.8 − u_g ln 0.2. With a flat prior e = ∫ m / (m + (1 − m) τ̂) dm = (1 − τ̂ + τ̂ ln τ̂) / (1 − τ̂)².
    """
    one = by_hand()
    one(torch.zeros(1, 1, 1, 1, dtype=torch.float64))
    u_l, u_g = math.exp(1 - 0.6 / math.log(2)), math.exp(1 - 0.5 / math.log(2))
    tau = math.exp(u_l * math.log(0.8) - u_g * math.log(0.2))
    e = ((1 - tau) + tau * math.log(tau)) / (1 - tau) ** 2
    assert one.figures["e"].item() == pytest.approx(e, abs=1e-12)


def test_btfl_counts_by_hand():
    """z = 0 looks internal (τ = 4) but H_l = ln 2 > 0.6: no event. z = 3: ẑ = 1, τ = 1/4, but H_l < 0.6: none.
    With H̄_l = 1, z = 0 is internal: its H_l < 1 and H_g = ln 2 > 0.5.
    """
    x = torch.tensor([0.0, 3.0, 0.0], dtype=torch.float64).view(3, 1, 1, 1)
    one = by_hand()
    one(x)
    assert one.prior.tolist() == [1, 1]
    one = adapter([[0.0], [0.0]], [[1.0], [0.0]], [0.8], [0.2], 1.0, 0.5)
    one(x)
    assert one.prior.tolist() == [1, 3]  # external first


def test_btfl_prunes_a_long_history():
    """(1, 16) after 15 internal images and λ = 16: 17 > 16, so (1 + 1/17, 1 + 16/17)."""
    one = adapter([[0.0], [0.0]], [[1.0], [0.0]], [0.8], [0.2], 1.0, 0.5)
    one(torch.zeros(15, 1, 1, 1, dtype=torch.float64))
    assert one.prior.tolist() == pytest.approx([1 + 1 / 17, 1 + 16 / 17])


def test_btfl_with_equal_heads_is_the_global_model():
    w = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    one = adapter(w, w, [0.3] * 4, [0.6] * 4, 0.5, 0.5)
    x = torch.rand(5, 1, 2, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(one(x), one.net(x).log_softmax(-1))


def test_btfl_takes_what_was_never_seen_for_unlikely_not_impossible():
    """Without smoothing a feature that was 0 for every training image has p = 1, and one that never was p = 0."""
    one = adapter([[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]], [1.0, 0.0], [0.5, 0.5], 0.5, 0.5)
    logits = one(torch.tensor([[[[3.0, 0.0]]], [[[0.0, 3.0]]]], dtype=torch.float64))
    assert logits.isfinite().all() and one.prior.isfinite().all()


def test_btfl_takes_no_gradient(monkeypatch):
    def forbidden(*_, **__):
        raise AssertionError("a gradient was taken")

    monkeypatch.setattr(torch.autograd, "grad", forbidden)
    monkeypatch.setattr(torch.autograd, "backward", forbidden)
    monkeypatch.setattr(torch.Tensor, "backward", forbidden)
    one = by_hand()
    assert one.optimizer is None
    assert not any(tensor.requires_grad for tensor in one.parameters())
    with torch.enable_grad():
        logits = one(torch.rand(4, 1, 1, 1, dtype=torch.float64, requires_grad=True))
    assert logits.grad_fn is None
    assert not logits.requires_grad


def test_btfl_hands_over_what_its_figures_need():
    one = by_hand()
    one(torch.rand(4, 1, 1, 1, dtype=torch.float64))
    assert one.figures["e"].shape == (4,)
    assert one.figures["prior"].tolist() == one.prior.tolist()
