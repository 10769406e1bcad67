import pytest
import torch
from torch import nn

import battery
import toys
from acclimate.adapters.fedthe import FedTHE
from acclimate.params import load


def made(w_g, w_p, h_l, h_g, **options):
    """An adapter of a classifier whose features are the images themselves."""
    w_g, w_p, h_l, h_g = (torch.as_tensor(values, dtype=torch.float64) for values in (w_g, w_p, h_l, h_g))
    net = nn.Sequential(nn.Flatten(), nn.Linear(w_g.shape[1], w_g.shape[0], bias=False, dtype=torch.float64))
    return FedTHE(load(net, {"1.weight": w_g}), head=w_p, means={"local": h_l, "global": h_g}, **options)


def golden_run(**options):
    inputs, g = toys.golden("btfl/btfl_golden.npz"), toys.golden("btfl/fedthe_golden.npz")
    one = made(inputs["W_g"], inputs["W_p"], g["local_rep"], g["global_rep"], **options)
    logits, e, histories = [], [], []
    for x in torch.from_numpy(inputs["z"][12:36]).split(1):
        logits.append(one(x))
        e.append(one.figures["e"])
        histories.append(one.history)
    return g, torch.cat(logits), torch.cat(e), torch.stack(histories)


@pytest.mark.parametrize("steps", [1, 6, 20])
def test_fedthe_equals_the_golden_vectors_of_the_code(steps):
    g, logits, e, histories = golden_run(steps=steps, reference_ema=True)
    toys.assert_same(e, g[f"e_bs1_steps{steps}"])
    toys.assert_same(histories, g["hist_bs1"])
    if steps == 20:
        toys.assert_same(logits, g["logits_bs1_steps20"])


def test_fedthe_with_a_running_mean_of_all_images_equals_the_golden_vectors():
    g, _, e, histories = golden_run()
    toys.assert_same(e, g["e_fixedEMA_bs1_steps20"])
    toys.assert_same(histories, g["hist_fixedEMA_bs1"])


def test_fedthe_first_step_by_hand():
    """Heads that contradict each other: λ_s = cos((1, 0), (0, 1)) ≈ 0, so only features count. z = 1 is at distance 1
    of the global mean and 3 of the local one: e rises. Adam's first step moves both weights by lr = 0.1, to (1.1, 0.9):
    e = σ(0.2).
    """
    one = made([[50.0], [-50.0]], [[-50.0], [50.0]], [4.0], [2.0], steps=1)
    one(torch.ones(1, 1, 1, 1, dtype=torch.float64))
    torch.testing.assert_close(one.figures["e"], torch.tensor([0.2]).double().sigmoid(), rtol=0, atol=1e-6)


def test_fedthe_with_equal_heads_is_the_global_model():
    w = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    one = made(w, w, [0.1] * 4, [0.2] * 4)
    x = torch.rand(5, 4, 1, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(one(x), one.net(x))


def test_fedthe_reference_history_stands_still_with_single_images():
    x = torch.arange(1.0, 4.0, dtype=torch.float64).view(3, 1, 1, 1)
    for reference, expected in ((True, 1.0), (False, 0.9 * (0.9 * 1 + 0.1 * 2) + 0.1 * 3)):
        one = made([[1.0], [0.0]], [[0.0], [1.0]], [0.0], [1.0], steps=1, reference_ema=reference)
        for image in x.split(1):
            one(image)
        assert one.history.item() == pytest.approx(expected)


def test_fedthe_plus_with_a_tiny_rate_is_fedthe():
    known = battery.knowing("fedthe").of(0)
    x = battery.population().examples(battery.population().streams[0].segments[0][1]).x[:3]
    make = lambda **options: FedTHE(  # noqa: E731
        load(battery.build()(), known["model"]), head=known["head"], means=known["means"], **options
    )
    plain, tiny, plus = make()(x), make(tune_steps=2, tune_lr=1e-12)(x), make(tune_steps=2, tune_lr=0.05)
    torch.testing.assert_close(plain, tiny)
    before = {name: tensor.clone() for name, tensor in plus.net.named_parameters()}
    assert not torch.allclose(plus(x), plain)
    assert all(torch.equal(before[name], tensor) for name, tensor in plus.net.named_parameters())
