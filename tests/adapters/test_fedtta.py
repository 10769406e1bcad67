import math

import pytest
import torch
from torch import nn

import fedtta_golden
import toys
from acclimate import params
from acclimate.adapters.fedtta import FedTTA
from acclimate.adapters.fedtta_pp import FedTTAPlusPlus
from acclimate.models.loss_net import InnerStep, LossNet

CODE, BARE = (1e-4, 10.0), (0.0, None)


def golden(target, lr, style, **options):
    phi = fedtta_golden.phi(toys.golden("fedtta/inputs.npz"))
    return target(fedtta_golden.net(), loss_net=phi, inner_step=InnerStep(lr, *style), batch_size=32, **options)


def images(client):
    return torch.from_numpy(toys.golden("fedtta/test_time.npz")[f"{client}/X"]).double()


STYLES = {"code": (CODE, "batches"), "plain_batchmean": (BARE, "batches"), "plain_fullnorm": (BARE, "client")}
CASES = [(f"test/c{k}", 0.3, style) for k in (0, 1) for style in STYLES] + [("test_lr003/c0", 0.03, "code")]


@pytest.mark.parametrize(("client", "lr", "style"), CASES)
def test_fedtta_agrees_with_golden_vectors(client, lr, style):
    expected, (how, norm) = toys.golden("fedtta/test_time.npz")[f"{client}/{style}/logits_steps0_5"], STYLES[style]
    adapter, x = golden(FedTTA, lr, how, norm=norm), images(client)
    for logits in expected:
        toys.assert_same(adapter.predict(x), logits)
        adapter.adapt(x)


@pytest.mark.parametrize(("client", "lr", "style"), CASES)
@pytest.mark.parametrize("patience", [1, 3, 5])
def test_fedtta_pp_stops_where_the_golden_vectors_do(client, lr, style, patience):
    arrays, (how, norm) = toys.golden("fedtta/test_time.npz"), STYLES[style]
    for first in (0, 1):
        name = f"{client}/{style}/choice_patience{patience}"
        name = name if first == 0 and style == "code" else f"{name}_first{first}"
        if name not in arrays.files:
            continue
        by = "batches" if style == "code" else "images"
        adapter = golden(FedTTAPlusPlus, lr, how, norm=norm, patience=patience, first=first, entropy=by)
        adapter(images(client))
        assert adapter.figures["chosen"].item() == int(arrays[name])
        trace = arrays[f"{client}/{style}/entropy_nats_steps0_{49 if style == 'code' else 50}"]
        seen = adapter.figures["entropy"]
        toys.assert_same(seen.double(), trace[: len(seen)].astype("float32").astype("float64"))


def linear_net(classes=2):
    """g with one path of weights 1 through all layers: the scalar of an image is max(0, Σ logits + 1)."""
    g = LossNet(classes, width=1)
    for tensor in g.parameters():
        nn.init.ones_(tensor)
    for layer in (2, 4, 6):
        nn.init.zeros_(g[layer].bias)
    return params.of(g)


def adapter_by_hand(target=FedTTA, *, lr=0.25, **options):
    return target(toys.logistic(), loss_net=linear_net(), inner_step=InnerStep(lr, 0.0, None), **options)


def test_fedtta_steps_by_hand():
    """Images 1 and 3, w = (0, 0): scalars g = (w₀ + w₁) x + 1 = (1, 1), ℓ = √2.

    ∂ℓ/∂w_c = Σ_i g_i x_i / ℓ = (1 + 3) / √2. With rate ¼: w_c = −1 / √2.
    """
    adapter = adapter_by_hand()
    adapter(torch.tensor([1.0, 3.0]).view(2, 1, 1, 1))
    assert adapter.net[1].weight.flatten().tolist() == pytest.approx([-1 / math.sqrt(2)] * 2)


def test_fedtta_takes_the_mean_over_batches_or_one_norm():
    """Two batches of one image: ℓ = (1 + 1) / 2 and its slope (1 + 3) / 2, so w_c = −½; one norm is as above."""
    x = torch.tensor([1.0, 3.0]).view(2, 1, 1, 1)
    batches, whole = adapter_by_hand(batch_size=1), adapter_by_hand(batch_size=1, norm="client")
    batches(x)
    whole(x)
    assert batches.net[1].weight.flatten().tolist() == pytest.approx([-0.5] * 2)
    assert whole.net[1].weight.flatten().tolist() == pytest.approx([-1 / math.sqrt(2)] * 2)


def test_fedtta_with_a_rate_of_zero_changes_nothing():
    adapter = adapter_by_hand(lr=0.0)
    before = params.of(adapter.net)
    adapter(torch.rand(4, 1, 1, 1))
    assert all(torch.equal(tensor, before[name]) for name, tensor in params.of(adapter.net).items())


def test_fedtta_pp_of_one_step_equals_fedtta():
    x = torch.rand(6, 1, 1, 1)
    assert torch.equal(adapter_by_hand()(x), adapter_by_hand(FedTTAPlusPlus, steps=1)(x))


def test_fedtta_pp_where_nothing_gets_surer_keeps_the_first_step():
    """g moves both logits alike, so the entropy stays ln 2: the first candidate wins, patience is used up after it."""
    for patience in (1, 3):
        adapter = adapter_by_hand(FedTTAPlusPlus, lr=0.01, patience=patience)
        adapter(torch.rand(6, 1, 1, 1))
        assert adapter.figures["chosen"].item() == 1
        assert adapter.figures["entropy"].tolist() == pytest.approx([math.log(2)] * (2 + patience))
        assert adapter.figures["predictions"].shape == (2 + patience, 6)


def test_fedtta_pp_may_keep_the_model_as_it_was_sent():
    adapter = adapter_by_hand(FedTTAPlusPlus, lr=0.01, first=0)
    before = params.of(adapter.net)
    adapter(torch.rand(6, 1, 1, 1))
    assert adapter.figures["chosen"].item() == 0
    assert torch.equal(adapter.net[1].weight, before["1.weight"])
