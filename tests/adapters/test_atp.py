import numpy as np
import pytest
import torch
from torch import nn

import toys
from acclimate.adapters.atp import ATP
from acclimate.errors import MissingKnowledge
from acclimate.models.modules import Modules


def toy():
    torch.manual_seed(0)
    return nn.Sequential(nn.BatchNorm1d(1), nn.Linear(1, 2)).double()


def rates_of(net, value, kinds="all"):
    return {name: torch.tensor(value).double() for name in Modules(net, kinds).tensors}


def test_atp_moves_statistics_by_rate_times_difference():
    """Inputs 1 and 3 have mean 2 and unbiased variance 2; from 0 and 1 at rate ½: 1 and 1.5."""
    net = toy()
    ATP(net, rates=rates_of(net, 0.5, "stats")).adapt(torch.tensor([[1.0], [3.0]]).double())
    assert (net[0].running_mean.item(), net[0].running_var.item()) == (1.0, 1.5)


def test_atp_online_averages_the_directions():
    """Batches of mean 2 and 4 seen from 0: directions 2 and 4, mean 3; at rate ½ the running mean is 1.5."""
    net = toy()
    adapter = ATP(net, rates=rates_of(net, 0.5, "stats"))
    adapter.adapt(torch.tensor([[1.0], [3.0]]).double())
    adapter.adapt(torch.tensor([[3.0], [5.0]]).double())
    assert net[0].running_mean.item() == 1.5


def test_atp_batch_forgets():
    net = toy()
    adapter = ATP(net, rates=rates_of(net, 0.5, "stats"), online=False)
    adapter.adapt(torch.tensor([[1.0], [3.0]]).double())
    adapter.adapt(torch.tensor([[3.0], [5.0]]).double())
    assert net[0].running_mean.item() == 2.0


def test_atp_with_zero_rates_is_no_adaptation():
    net, x = toy(), torch.randn(6, 1).double()
    before = net.eval()(x)
    assert torch.equal(ATP(net, rates=rates_of(net, 0.0))(x), before)


def test_atp_with_rate_one_on_statistics_is_batch_normalisation_with_unbiased_variance():
    net, x = toy(), torch.randn(6, 1).double()
    logits = ATP(net, rates=rates_of(net, 1.0, "stats"))(x)
    torch.testing.assert_close(logits, net[1]((x - x.mean()) / (x.var() + 1e-5).sqrt()))


def test_atp_refuses_rates_of_another_model():
    with pytest.raises(MissingKnowledge, match="learn them on this model"):
        ATP(toy(), rates={"other.weight": torch.tensor(0.1)})


def golden_logits(alpha, **options):
    core = toys.golden("atp/core.npz")
    names = [str(name) for name in core["module_names"]]
    values = core[alpha] if alpha in core else np.zeros(23)
    rates = dict(zip(names, torch.from_numpy(values).double(), strict=True))
    adapter = ATP(toys.golden_net(), rates=rates, **options)
    return torch.stack([adapter(x) for x in toys.golden_batches()]), core


@pytest.mark.parametrize("alpha", ["zero", "alpha0"])
def test_atp_batch_agrees_with_golden_vectors(alpha):
    logits, core = golden_logits(alpha, online=False)
    toys.assert_same(logits, core[f"logits_batch/{alpha}"])


def test_atp_online_agrees_with_golden_vectors():
    logits, core = golden_logits("zero")
    toys.assert_same(logits, core["logits_online/zero"])
    logits, core = golden_logits("alpha0")
    y = torch.from_numpy(toys.golden("atp/inputs.npz")["Y0"])
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), y).item()
    assert loss == pytest.approx(float(core["loss_online/alpha0"]), abs=1e-9)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"online": False}, "logits_batch/clip"),
        ({"order": "code"}, "logits_online/clip"),
        ({"order": "paper"}, "logits_online_paper_order/clip"),
    ],
)
def test_atp_with_clamped_variances_agrees_with_golden_vectors(options, name):
    """A degenerate regime (variance zero, so a gain of 1/√ε): relative tolerance."""
    logits, core = golden_logits("alpha_clip", **options)
    torch.testing.assert_close(logits, torch.from_numpy(core[name]), rtol=1e-6, atol=1e-6)
