import pytest
import torch
from torch import nn

import toys
from acclimate import params, trees
from acclimate.adapters.bn_adapt import BNAdapt
from acclimate.adapters.none import NoAdaptation
from acclimate.errors import UnsupportedModel
from acclimate.models.build import Build

BATCH = torch.tensor([0.0, 2.0]).view(2, 1, 1, 1)
BUILD = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))


def test_bn_adapt_mixes_source_and_batch_statistics():
    """Source mean 0 and variance 1, batch (0, 2) with mean 1 and unbiased variance 2; N = n = 2: halves.

    Mean ½, variance 1.5; the logits of x = 2 are ±(2 − ½) / √(1.5 + 1e-5).
    """
    adapter = BNAdapt(toys.normed(), prior=2.0)
    logits = adapter(BATCH)
    moved = {name: tensor.item() for name, tensor in adapter.moving().items()}
    assert moved == {"1.running_mean": 0.5, "1.running_var": 1.5}
    z = 1.5 / (1.5 + 1e-5) ** 0.5
    torch.testing.assert_close(logits[1], torch.tensor([z, -z]))


def test_bn_adapt_later_layers_see_inputs_already_normalised():
    """N = n = 2 as above: the first layer makes (0, 2) into (−½, 1.5) / √(1.5 + 1e-5).

    Their mean is ½ / √1.5 and their unbiased variance 2 / 1.5, to 1e-5. The second layer mixes halves of these
    with 0 and 1; an un-adapted pass would have shown it (0, 2).
    """
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(1), nn.BatchNorm1d(1), nn.Linear(1, 2))
    adapter = BNAdapt(net, prior=2.0)
    adapter(BATCH)
    assert adapter.moving()["2.running_mean"].item() == pytest.approx(0.25 / 1.5**0.5, rel=1e-4)
    assert adapter.moving()["2.running_var"].item() == pytest.approx((1 + 2 / 1.5) / 2, rel=1e-4)


def test_bn_adapt_without_prior_normalises_with_the_unbiased_batch():
    x = toys.examples(6).x
    net = BUILD(None)
    logits = BNAdapt(net, prior=0.0)(x)
    maps = net.conv(net.normalise(x))
    centred = maps - maps.mean((0, 2, 3), keepdim=True)
    scale = (maps.var((0, 2, 3), keepdim=True, correction=1) + net.bn.eps).sqrt()
    torch.testing.assert_close(logits, net.head((centred / scale).relu().flatten(1)), rtol=1e-4, atol=1e-5)


def test_bn_adapt_with_a_very_large_prior_equals_none():
    net, x = BUILD(None), toys.examples(6).x
    plain = NoAdaptation(net)(x)
    torch.testing.assert_close(BNAdapt(net, prior=1e12)(x), plain, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(BNAdapt(net, prior=1.0)(x), plain, rtol=1e-5, atol=1e-6)


def test_bn_adapt_starts_afresh_with_every_batch():
    net = BUILD(None)
    adapter = BNAdapt(net)
    x = toys.examples(6).x
    first, state = adapter(x), adapter.state()
    adapter(toys.examples(5, seed=1).x)
    assert not trees.equal(adapter.state(), state)
    assert torch.equal(adapter(x), first)
    assert trees.equal(adapter.state(), state)


def test_bn_adapt_counts_the_images_of_the_batch_at_hand():
    """N = 2 with four images: the source's share is ⅓, so the mean of (0, 2, 0, 2) weighs ⅔."""
    adapter = BNAdapt(toys.normed(), prior=2.0)
    adapter(BATCH.repeat(2, 1, 1, 1))
    assert adapter.moving()["1.running_mean"].item() == pytest.approx(2 / 3, abs=1e-6)


def test_bn_adapt_weighs_a_short_batch_as_told():
    """N = 2 against 4 images, of which two came: their mean 1 weighs ⅔; a whole batch does not change by the option."""
    adapter = BNAdapt(toys.normed(), prior=2.0, batch=4)
    adapter(BATCH)
    assert adapter.moving()["1.running_mean"].item() == pytest.approx(2 / 3, abs=1e-6)
    whole = BATCH.repeat(2, 1, 1, 1)
    assert torch.equal(adapter(whole), BNAdapt(toys.normed(), prior=2.0)(whole))


def test_bn_adapt_of_one_image_stays_finite():
    logits = BNAdapt(toys.normed(), prior=0.0)(BATCH[:1])
    assert logits.isfinite().all()


def test_bn_adapt_predicts_with_the_statistics_it_holds():
    net, x = BUILD(None), toys.examples(6).x
    adapter = BNAdapt(net)
    logits = adapter(x)
    torch.testing.assert_close(adapter.predict(x), logits)
    adapter.load_shared({name: params.copy(tensor) * 2 for name, tensor in adapter.shared().items()})
    assert not torch.allclose(adapter.predict(x), logits)


def test_bn_adapt_without_batch_norms_names_itself():
    with pytest.raises(UnsupportedModel, match="'bn-adapt' adapts batch-normalisation layers"):
        BNAdapt(toys.logistic())


def test_bn_adapt_agrees_with_golden_vectors():
    adapter = BNAdapt(toys.golden_net(), prior=16.0)
    logits = torch.stack([adapter(x) for x in toys.golden_batches()])
    torch.testing.assert_close(logits, toys.golden_logits("bn_adapt"), **toys.TIGHT)


def test_tta_bn_is_the_batch_alone_with_the_variance_it_normalises_by():
    """Batch (0, 2): mean 1, biased variance 1; whatever the source's statistics."""
    adapter = BNAdapt(toys.normed(), prior=0.0, unbiased=False)
    logits = adapter(BATCH)
    assert {name: tensor.item() for name, tensor in adapter.shared().items()} == {
        "1.running_mean": 1.0,
        "1.running_var": 1.0,
    }
    z = 1 / (1 + 1e-5) ** 0.5
    torch.testing.assert_close(logits[1], torch.tensor([z, -z]))


def test_tta_bn_shares_and_takes_statistics_as_the_authors_of_tsa():
    golden = toys.golden("tsa/tsa_golden.npz")
    x, weight, bias, mean, variance, local, mixed, mean_in, var_in = (
        torch.from_numpy(golden[name])
        for name in (
            *(f"bnlayer_{n}" for n in ("x", "weight", "bias", "batch_mean", "batch_var", "y_local", "y_agg")),
            "bn_mean_agg_l0",
            "bn_var_agg_l0",
        )
    )
    layer = nn.BatchNorm2d(4).double()
    params.load(layer, {**params.of(layer), "weight": weight, "bias": bias})
    adapter = BNAdapt(nn.Sequential(layer), prior=0.0, unbiased=False)
    toys.assert_same(adapter(x), local)
    toys.assert_same(adapter.shared()["0.running_mean"], mean)
    toys.assert_same(adapter.shared()["0.running_var"], variance)
    adapter.load_shared({"0.running_mean": mean_in[0], "0.running_var": var_in[0]})
    toys.assert_same(adapter.predict(x), mixed)
