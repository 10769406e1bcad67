import pytest
import torch
import torch.nn.functional as F
from torch import nn

import toys
from acclimate.models.modules import Modules


def small(affine=True):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 3, 2), nn.BatchNorm2d(3, affine=affine), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3)
    ).double()
    with torch.no_grad():
        net[1].running_mean.uniform_(-1, 1)
        net[1].running_var.uniform_(0.5, 2)
        if affine:
            net[1].weight.uniform_(0.5, 2)
    return net


def test_modules_come_layer_by_layer_with_statistics_first():
    assert list(Modules(small()).tensors) == [
        "0.weight", "0.bias", "1.running_mean", "1.running_var", "1.weight", "1.bias", "4.weight", "4.bias",
    ]  # fmt: skip
    assert list(Modules(small(), "stats").tensors) == ["1.running_mean", "1.running_var"]
    assert "1.running_mean" not in Modules(small(), "params").tensors


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("kinds", ["all", "stats"])
def test_gradients_of_statistics_are_those_of_finite_differences(affine, kinds):
    net = small(affine)
    x, y = torch.randn(5, 1, 3, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1])
    modules = Modules(net, kinds)
    found, loss = modules.gradients(x, y)
    assert loss == pytest.approx(F.cross_entropy(net(x), y).item())
    for name in ("1.running_mean", "1.running_var"):
        tensor = modules.tensors[name]
        for i in range(3):
            values = []
            for step in (1e-5, -1e-5):
                with torch.no_grad():
                    tensor[i] += step
                    values.append(F.cross_entropy(net(x), y).item())
                    tensor[i] -= step
            assert found[name][i].item() == pytest.approx((values[0] - values[1]) / 2e-5, abs=1e-8)
    assert (net[1].weight is None) == (not affine)


def test_directions_of_statistics_are_the_batch_minus_the_running():
    """A batch norm on inputs 1 and 3: mean 2, unbiased variance 2 (biased 1); running statistics are 0 and 1."""
    net = nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 2))
    h = Modules(net).directions(torch.tensor([[1.0], [3.0]]))
    assert (h["0.running_mean"].item(), h["0.running_var"].item()) == (2.0, 1.0)
    assert Modules(net).directions(torch.tensor([[1.0], [3.0]]), unbiased=False)["0.running_var"].item() == 0.0


def test_move_starts_from_the_source_and_restore_goes_back():
    net = small()
    modules = Modules(net)
    ones = {name: torch.ones_like(tensor) for name, tensor in modules.tensors.items()}
    rates = {name: torch.tensor(-10.0 if "var" in name else 2.0) for name in ones}
    before = {name: tensor.clone() for name, tensor in modules.tensors.items()}
    for _ in range(2):  # not cumulative
        modules.move(rates, ones, floor=0.25)
    assert torch.equal(net[4].bias, before["4.bias"] + 2)
    assert (net[1].running_var == 0.25).all()
    modules.restore()
    assert all(torch.equal(tensor, before[name]) for name, tensor in modules.tensors.items())


def test_modules_agree_with_golden_vectors():
    core, full = toys.golden("atp/core.npz"), toys.golden("atp/core_h_and_adapted.npz")
    modules = Modules(toys.golden_net())
    names = [str(name) for name in core["module_names"]]
    assert list(modules.tensors) == names
    x = toys.golden_batches()[0]
    h = modules.directions(x)
    for name in names:
        toys.assert_same(h[name], full[f"h/{name}"])
    for layer in ("bn1", "bn2", "bn3", "bn4"):
        biased = modules.directions(x, unbiased=False)[f"{layer}.running_var"]
        toys.assert_same(biased, core[f"h_biased_var/{layer}.running_var"])
    rates = dict(zip(names, torch.from_numpy(core["alpha0"]).double(), strict=True))
    modules.move(rates, h)
    for name in names:
        toys.assert_same(modules.tensors[name], full[f"adapted/{name}"])
    y = torch.from_numpy(toys.golden("atp/inputs.npz")["Y0"][:20])
    gradient, loss = modules.gradients(x, y)
    assert loss == pytest.approx(float(core["ce_adapted_b0"]), abs=1e-9)
    toys.assert_same(torch.stack([(h[n] * gradient[n]).sum() for n in names]), core["grad_alpha_b0/none"])
