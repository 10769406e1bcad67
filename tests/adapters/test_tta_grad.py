import math

import pytest
import torch

import toys
from acclimate import params, trees
from acclimate.adapters.none import NoAdaptation
from acclimate.adapters.tent import Tent
from acclimate.adapters.tta_grad import TTAGrad
from acclimate.errors import UnsupportedModel
from acclimate.models.build import Build
from acclimate.terms import Contrast, Proximal, SelfDistillation

BATCH = torch.tensor([0.0, 2.0]).view(2, 1, 1, 1)
BUILD = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))


def moved(adapter):
    return params.of(adapter.net)


def test_tta_grad_predicts_after_its_step():
    """Batch (0, 2) has z = ∓s, s = 1 / √(1 + 1e-5); the entropy's slope in γ is −4 s² p (1 − p) with p = σ(2s).

    lr ½ gives γ = 1 + 2 s² p (1 − p), and the second image's first logit is γ s.
    """
    adapter = TTAGrad(toys.normed(), lr=0.5)
    logits = adapter(BATCH)
    s = 1 / math.sqrt(1 + 1e-5)
    p = 1 / (1 + math.exp(-2 * s))
    gamma = 1 + 2 * s * s * p * (1 - p)
    assert adapter.moving()["1.weight"].item() == pytest.approx(gamma, abs=1e-6)
    assert logits[1].tolist() == pytest.approx([gamma * s, -gamma * s], abs=1e-6)


def test_tta_grad_learns_what_tent_learns_and_predicts_later():
    ours, tent, x = TTAGrad(BUILD(None), lr=0.1), Tent(BUILD(None), lr=0.1, optimizer="sgd"), toys.examples(6).x
    params.load(tent.net, moved(ours))
    first, second = tent(x), tent(x)
    toys.assert_same(ours(x), second)
    assert not torch.allclose(ours.predict(x), first)
    assert set(ours.shared()) == set(tent.shared()) == {"bn.weight", "bn.bias"}


def test_tta_grad_may_move_everything():
    adapter, x = TTAGrad(BUILD(None), lr=0.1, trains="all"), toys.examples(6).x
    before = moved(adapter)
    adapter(x)
    after = moved(adapter)
    changed = {name for name in after if not torch.equal(after[name], before[name])}
    assert changed == {"conv.weight", "bn.weight", "bn.bias", "head.weight", "head.bias"}


def test_tta_grad_with_a_tiny_rate_stays_where_it_is():
    adapter, x = TTAGrad(BUILD(None), lr=1e-12, trains="all"), toys.examples(6).x
    before = adapter.predict(x)
    torch.testing.assert_close(adapter(x), before, rtol=0, atol=1e-6)


def test_tta_grad_fedprox_equals_no_term_with_one_step_and_not_with_two():
    """FedProx's pull is zero at the anchor, where every first step begins."""
    x, weights = toys.examples(6).x, params.of(BUILD(None))
    after = {}
    fedprox = Proximal(mu=1.0)
    for term, steps in [(None, 1), (fedprox, 1), (None, 2), (fedprox, 2)]:
        adapter = TTAGrad(params.load(BUILD(None), weights), lr=0.5, steps=steps, term=term)
        adapter.adapt(x)
        after[term, steps] = adapter.shared()
    assert trees.equal(after[fedprox, 1], after[None, 1])
    assert not trees.equal(after[fedprox, 2], after[None, 2])


@pytest.mark.parametrize("term", [Contrast(mu=1.0), SelfDistillation(mu=1.0)])
def test_tta_grad_terms_compare_with_the_last_upload_and_download(term):
    x, weights = toys.examples(6).x, params.of(BUILD(None))
    plain, ours = (
        TTAGrad(params.load(BUILD(None), weights), lr=0.5, trains="all", term=given) for given in (None, term)
    )
    for adapter in (plain, ours):
        adapter.adapt(x)
    toys.assert_same(ours.shared()["conv.weight"], plain.shared()["conv.weight"])  # nothing was sent before
    sent = ours.shared()
    download = {name: tensor.flip(-1) for name, tensor in sent.items()}
    for adapter in (plain, ours):
        adapter.load_shared(download)
    assert trees.equal(ours.state()["previous"], sent)
    assert trees.equal(ours.state()["anchor"], download)
    for adapter in (plain, ours):
        adapter.adapt(x)
    assert not torch.allclose(ours.shared()["conv.weight"], plain.shared()["conv.weight"], atol=1e-6)


def test_tta_grad_first_step_of_adam_moves_by_the_rate_against_the_sign():
    """With m̂ = g and v̂ = g² the step is lr · g / (|g| + 1e-8): ± lr, whatever the size of the gradient.

    The slope in γ is negative (see the first test), so γ = 1 + lr.
    """
    adapter = TTAGrad(toys.normed(), lr=0.01, optimizer="adam")
    adapter.adapt(BATCH)
    assert adapter.moving()["1.weight"].item() == pytest.approx(1.01, abs=1e-6)
    adapter, x = TTAGrad(BUILD(None), lr=0.01, optimizer="adam", trains="all"), toys.examples(6).x
    before = adapter.shared()
    adapter.adapt(x)
    steps = {name: (tensor - before[name]).abs() for name, tensor in adapter.shared().items()}
    assert max(step.max().item() for step in steps.values()) == pytest.approx(0.01, abs=1e-5)
    assert all(step.median().item() == pytest.approx(0.01, abs=1e-4) for step in steps.values())


def test_tta_grad_with_adam_learns_what_tent_with_adam_learns():
    ours, tent = TTAGrad(BUILD(None), lr=0.1, optimizer="adam"), Tent(BUILD(None), lr=0.1)
    params.load(tent.net, moved(ours))
    for seed in range(3):
        x = toys.examples(6, seed=seed).x
        ours.adapt(x)
        tent(x)
    assert trees.equal(ours.shared(), tent.shared())


def test_tta_grad_keeps_the_moments_of_adam_to_itself():
    adapter, x = TTAGrad(BUILD(None), lr=0.1, optimizer="adam"), toys.examples(6).x
    adapter.adapt(x)
    assert set(adapter.shared()) == {"bn.weight", "bn.bias"}
    saved = trees.load(trees.dump(adapter.state()))
    assert saved["optimizer"]["state"][0]["exp_avg"].abs().sum() > 0
    adapter.load_shared({name: tensor * 2 for name, tensor in adapter.shared().items()})
    assert trees.equal(adapter.state()["optimizer"], saved["optimizer"])
    adapter.adapt(x)
    second = adapter.shared()
    adapter.load_state(saved)
    adapter.load_shared({name: tensor * 2 for name, tensor in adapter.shared().items()})
    adapter.adapt(x)
    assert trees.equal(adapter.shared(), second)


def test_tta_grad_running_statistics_follow_the_batch_and_predict():
    """Batch (0, 2): mean 1, unbiased variance 2. From 0 and 1 a tenth of the way: 0.1 and 1.1, for any rate.

    The second image's logit is then γ (2 − 0.1) / √(1.1 + 1e-5) with γ = 1 at a vanishing rate.
    """
    adapter = TTAGrad(toys.normed(), lr=1e-12, statistics="running")
    logits = adapter(BATCH)
    shared = {name: tensor.item() for name, tensor in adapter.shared().items()}
    assert shared["1.running_mean"] == pytest.approx(0.1)
    assert shared["1.running_var"] == pytest.approx(1.1)
    assert logits[1, 0].item() == pytest.approx(1.9 / math.sqrt(1.1 + 1e-5), abs=1e-5)
    adapter.load_shared({**adapter.shared(), "1.running_mean": torch.tensor([1.0])})
    assert adapter.predict(BATCH)[1, 0].item() == pytest.approx(1 / math.sqrt(1.1 + 1e-5), abs=1e-5)


def test_tta_grad_on_running_statistics_steps_as_on_the_batch_and_as_torch_trains():
    x, weights = toys.examples(6).x, params.of(BUILD(None))
    ours, batch = (TTAGrad(params.load(BUILD(None), weights), lr=0.1, statistics=kind) for kind in ("running", "batch"))
    net = params.load(BUILD(None), weights).train()
    net(x)
    ours.adapt(x)
    batch.adapt(x)
    for name in ("bn.weight", "bn.bias"):
        assert torch.equal(ours.shared()[name], batch.shared()[name])
    for name in ("bn.running_mean", "bn.running_var"):
        torch.testing.assert_close(ours.shared()[name], params.of(net)[name])


@pytest.mark.parametrize("options", [{"optimizer": "adam"}, {"statistics": "running"}])
def test_tta_grad_finetune_leaves_everything_as_it_was(options):
    adapter = TTAGrad(BUILD(None), lr=0.5, finetune=2, term=Contrast(), **options)
    x, z = toys.examples(6).x, toys.examples(6, seed=1).x
    adapter.adapt(x)
    before = trees.dump(adapter.state())
    adapter.predict(z)
    assert trees.dump(adapter.state()) == before


def test_tta_grad_finetune_is_a_step_for_the_prediction_alone():
    x, weights = toys.examples(6).x, params.of(BUILD(None))
    fine, plain = (TTAGrad(params.load(BUILD(None), weights), lr=0.5, finetune=n) for n in (1, 0))
    before = fine.state()
    logits = fine.predict(x)
    assert trees.equal(fine.state(), before)
    torch.testing.assert_close(logits, plain(x))  # one step, then predict
    fine.adapt(x)
    plain.load_state({**plain.state(), "moving": before["moving"]})
    plain.adapt(x)
    assert trees.equal(fine.shared(), plain.shared())


def test_tta_grad_leaves_one_image_to_the_source_statistics():
    adapter = TTAGrad(toys.normed(), lr=0.5, finetune=1)
    state = adapter.state()
    torch.testing.assert_close(adapter(BATCH[1:]), NoAdaptation(toys.normed())(BATCH[1:]))
    assert trees.equal(adapter.state(), state)


def test_tta_grad_needs_norms_unless_it_trains_all():
    with pytest.raises(UnsupportedModel, match="tta-grad"):
        TTAGrad(toys.two_layers())
    assert set(TTAGrad(toys.two_layers(), trains="all").moving()) == {"1.weight", "2.weight"}
