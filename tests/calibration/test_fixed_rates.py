import pytest
import torch

import battery
import toys
from acclimate import params
from acclimate.adapters.atp import ATP
from acclimate.calibration.fixed_rates import FixedRates
from acclimate.engine.known import Known
from acclimate.errors import ConfigError
from acclimate.models.build import Build
from acclimate.models.norms import batch_moments

BUILD = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))


def rates(**options):
    task = toys.client(toys.examples(4), BUILD).task
    return FixedRates(**options).init(task)


def test_fixed_rates_are_for_modules_with_such_names_and_zero_for_others():
    found = rates(rate=-0.3, modules=("*.running_mean",))
    chosen = {name for name in found if name.endswith(".running_mean")}
    assert chosen and {name for name, rate in found.items() if rate} == chosen
    assert all(found[name].item() == pytest.approx(-0.3) for name in chosen)


def test_a_rate_of_one_half_moves_a_running_mean_half_way_to_the_batch():
    net, x = BUILD(None), toys.examples(6).x
    name, layer = next((n, m) for n, m in net.named_modules() if hasattr(m, "running_mean"))
    entering: list[torch.Tensor] = []
    layer.register_forward_pre_hook(lambda _, inputs: entering.append(inputs[0]))
    before = params.copy(layer.running_mean)
    adapter = ATP(net, rates=rates(rate=0.5, modules=(f"{name}.running_mean",)), online=False)
    adapter.adapt(x)
    torch.testing.assert_close(layer.running_mean, 0.5 * before + 0.5 * batch_moments(entering[0])[0])


def test_fixed_rates_tell_which_names_there_are():
    with pytest.raises(ConfigError, match=r"fixed-rates.modules: expected names like these: .*; found 'conv9"):
        rates(modules=("conv9.*",))


def test_fixed_rates_of_zero_adapt_nothing():
    known = Known([battery.run_phase("fixed-rates", rounds=1)]).of(None)
    assert {round(rate.item(), 6) for rate in known["rates"].values()} == {0.1}
    net, x = BUILD(None), toys.examples(6).x
    torch.testing.assert_close(ATP(net, rates=rates(rate=0.0))(x), net.eval()(x).detach())
