"""The guard: who answers when, what it goes back to, and that nothing that is not finite survives."""

import pytest
import torch
from torch import nn

import acclimate as ac
from acclimate import trees
from acclimate.adapters.guard import Guard
from acclimate.adapters.tent import Tent
from acclimate.contracts import Adapter, AdapterRecipe
from acclimate.experiment.catalog import ADAPTERS
from acclimate.harm import FEATURES, RULE, Signals, Source


class Turning(Adapter):
    """Turns the logits it was given more and more: at a half turn it says the opposite of the model."""

    def __init__(self, net: nn.Module, *, step: float = 1.0) -> None:
        super().__init__(net)
        self.step, self.turn = step, torch.zeros(1)

    def moving(self):
        return {"turn": self.turn}

    def forward(self, x):
        self.turn += self.step
        return self.predict(x)

    def adapt(self, x):
        self.turn += self.step

    def predict(self, x):
        return self.net(x) * torch.cos(self.turn)


def net():
    plain = nn.Linear(2, 2, bias=False)
    plain.weight.data = torch.eye(2)
    return plain


def trusting(worth):
    """A rule by which every disagreement is worth something, of one sign."""
    return torch.tensor([worth, *[0.0] * (len(FEATURES) - 1)])


def guard(step=3.0, worth=-1.0, **options):
    recipe = AdapterRecipe(Turning, {"step": step})
    return Guard(net(), adapter=recipe, calibrated=True, rule=trusting(worth), margin=0.0, least=-1e-6, **options)


def images(count=8):
    return torch.rand(count, 2, generator=torch.Generator().manual_seed(0))


def test_signals_of_one_batch_by_hand():
    """Two images, two classes, and the models differ on the second.

    Source probabilities (0.8, 0.2) and (0.6, 0.4), adapted (0.8, 0.2) and (0.3, 0.7): d = 1/2; the source prefers its
    own answer by 0.6 − 0.4 = 0.2, the adapted model its own by 0.7 − 0.3 = 0.4, on half of the images: 0.1 and 0.2.
    The prior is (0.7, 0.3), so the source's second is corrected to (0.42, 0.12) / 0.54: 0.30 / 0.54 / 2 = 0.27778.
    Histograms (1, 0) and (1/2, 1/2): concentrations 1 and 0, distance 1/2.
    """
    seen = Signals(80.0)
    source, adapted = torch.tensor([[0.8, 0.2], [0.6, 0.4]]).log(), torch.tensor([[0.8, 0.2], [0.3, 0.7]]).log()
    seen.add(source, adapted, 0.25)
    phi = dict(zip(FEATURES, seen.features().tolist(), strict=True))
    assert phi["d"] == 0.5
    assert phi["d · d"] == 0.25
    assert phi["d · drift"] == 0.125
    assert phi["d · source concentration"] == pytest.approx(0.5)
    assert phi["d · adapted concentration"] == pytest.approx(0.0)
    assert phi["d · distance of histograms"] == pytest.approx(0.25)
    assert phi["adapted model's preference for its own answer"] == pytest.approx(0.2)
    assert phi["source model's preference for its own answer"] == pytest.approx(0.1)
    assert phi["source model's preference, its prior corrected"] == pytest.approx(0.277778, abs=1e-6)


def test_signals_forget_e_fold_after_a_window_of_images():
    seen, same, other = Signals(10.0), torch.tensor([[2.0, 0.0]] * 10), torch.tensor([[0.0, 2.0]] * 10)
    seen.add(same, other, 0.0)
    seen.add(same, same, 0.0)
    e = torch.tensor(-1.0, dtype=torch.float64).exp()
    torch.testing.assert_close(seen.means["differ"], e / (1 + e))


def test_guard_that_trusts_everything_is_the_adapter():
    """Once two checks have said so."""
    x, plain, watched = images(), Turning(net(), step=3.0), guard(worth=1.0)
    for batch in range(5):
        adapted = plain(x)
        assert torch.equal(watched(x), adapted if batch else net()(x))
        assert watched.figures["stepped_in"] == (batch == 0)


def test_guard_that_trusts_nothing_is_the_source_model():
    x, watched = images(), guard(worth=-1.0)
    for _ in range(5):
        assert torch.equal(watched(x), net()(x))
        assert watched.figures["stepped_in"]
    assert watched.inner.turn == 0  # started anew after every trial


def test_guard_asks_for_a_share_of_what_both_differ_on_and_for_a_little_of_all():
    """Both differ on every image, and a rule says that half of them are won: 0.4 of them, and 0.1 of all."""

    def trusts(margin, least):
        recipe = AdapterRecipe(Turning, {"step": 2.0})
        watched = Guard(net(), adapter=recipe, calibrated=True, rule=trusting(0.5), margin=margin, least=least)
        watched(images())
        watched(images())
        return watched.trusted

    assert trusts(0.4, 0.09)
    assert not trusts(0.4, 0.11)
    assert not trusts(0.6, 0.0)


def test_guard_goes_back_to_the_last_good_state_then_to_the_first():
    """Turned by 0.7 a batch, the adapter agrees in batches 1 and 2 and says the opposite from batch 3 on."""
    x, watched = images(), guard(step=0.7, every=1)
    watched(x)
    watched(x)
    assert watched.trusted
    assert torch.allclose(watched.inner.turn, torch.tensor(1.4))
    logits = watched(x)
    assert not watched.trusted
    assert torch.equal(logits, net()(x))
    assert torch.allclose(watched.inner.turn, torch.tensor(1.4))  # the last good one
    watched(x)
    assert watched.inner.turn == 0  # that failed too


def test_guard_asks_the_source_model_every_few_batches_only():
    calls, watched, x = [], guard(worth=1.0, every=3), images()
    ask = watched.source.__call__
    watched.source = type(
        "Counting", (), {"__call__": lambda self, x: calls.append(1) or ask(x), "drift": lambda self: 0.0}
    )()
    for _ in range(9):
        watched(x)
    assert len(calls) == 3 + 1  # every third batch, and one more to be sure of the first


def test_guard_trusts_after_two_good_checks_and_not_after_one():
    """Turned by a half turn and back, the adapter differs in every second batch only; what it loses, it loses then."""
    x, watched = images(), guard(step=torch.pi, worth=1.0, every=4, window=1.0)
    watched.margin = 0.5  # so that batches without a disagreement promise as little as they cost
    watched.least = 0.1
    watched(x)
    assert (watched.promising, watched.trusted) == (True, False)
    watched(x)  # checked at once: no disagreement, no gain
    assert (watched.promising, watched.trusted) == (False, False)
    assert watched.inner.turn == 0  # and it starts anew


@pytest.mark.parametrize("name", ["tent", "em", "shot"])
def test_what_is_not_finite_reaches_no_adapter(name):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    adapted, fresh, x = ac.wrap(model, name, guard=True), ac.wrap(model, name, guard=True), torch.rand(8, 4)
    broken = torch.full((8, 4), torch.nan)
    assert torch.equal(adapted(broken), torch.zeros(8, 3))
    assert adapted.intervened
    assert trees.equal(adapted.state()["inner"], fresh.state()["inner"])
    part = torch.cat([x, broken[:2]])
    torch.testing.assert_close(adapted(part)[:8], fresh(x))
    assert trees.finite(adapted.state())


def test_a_state_that_is_not_finite_does_not_survive():
    class Exploding(Turning):
        def forward(self, x):
            logits = super().forward(x)
            self.turn.fill_(torch.inf)  # after the prediction, as a step may
            return logits

    watched, x = Guard(net(), adapter=AdapterRecipe(Exploding), calibrated=True, rule=trusting(1.0)), images()
    for _ in range(3):
        assert torch.equal(watched(x), net()(x))
        assert trees.finite(watched.state())
        assert watched.figures["stepped_in"]


def test_source_model_is_there_although_its_tensors_move():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).eval()
    x = torch.rand(8, 4)
    before = model(x).detach()
    tent = Tent(model, lr=0.5)
    source = Source(tent)
    assert source.drift() == 0
    tent(x)
    assert torch.equal(source(x), before)
    assert not torch.equal(tent.net(x), before)
    assert source.drift() > 0


def test_default_rule_says_nothing_of_a_model_that_agrees():
    seen, logits = Signals(80.0), torch.tensor([[2.0, 0.0, 1.0]])
    seen.add(logits, logits, 0.5)
    assert len(RULE) == len(FEATURES)
    assert float(torch.tensor(RULE).double() @ seen.features()) == 0


def test_guard_that_does_not_trust_still_has_something_to_share():
    model, x = nn.Linear(2, 2), images()
    watched = Guard(model, adapter=AdapterRecipe(ADAPTERS["em"].load()), calibrated=True, rule=trusting(0.0), least=1.0)
    watched.adapt(x)
    assert not watched.trusted
    assert watched.shared()["prior"].shape == (2,)
    assert torch.equal(watched.predict(x), model(x))
