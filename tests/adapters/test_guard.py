"""The guard: who answers when, what it goes back to, and that nothing that is not finite survives."""

import math

import pytest
import torch
from torch import nn

import acclimate as ac
from acclimate import trees
from acclimate.adapters.guard import Guard
from acclimate.adapters.tent import Tent
from acclimate.contracts import Adapter, AdapterRecipe
from acclimate.errors import ConfigError
from acclimate.experiment.catalog import ADAPTERS
from acclimate.harm import FEATURES, HEIGHT, SIGNS, STRAIGHT, Look, Signals, Source, width, with_waves
from acclimate.mixture import Answers
from acclimate.rule import DEFAULT, Rule, Sums, solved


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
    n = len(FEATURES)
    return Rule(torch.tensor([worth, *[0.0] * (n - 1)]).double(), torch.zeros(n, n).double())


def guard(step=3.0, worth=-1.0, **options):
    recipe = AdapterRecipe(Turning, {"step": step})
    options = {"margin": 0.0, "least": 0.0, "minimum": 1, "doubt": 0.0, "agreement": 0.0, **options}
    return Guard(net(), adapter=recipe, calibrated=True, rule=trusting(worth), **options)


def images(count=8):
    return torch.rand(count, 2, generator=torch.Generator().manual_seed(0))


def test_signals_of_one_batch_by_hand():
    """Two images, two classes, and the models differ on the second.

    Source probabilities (0.8, 0.2) and (0.6, 0.4), adapted (0.8, 0.2) and (0.3, 0.7): on the second the source prefers
    its own answer by 0.6 − 0.4 = 0.2, the adapted model its own by 0.7 − 0.3 = 0.4. The prior is (0.7, 0.3), so the
    source's second is corrected to (0.42, 0.12) / 0.54, by 0.30 / 0.54 = 0.55556. Histograms (1, 0) and (1/2, 1/2):
    concentrations 1 and 0, distance 1/2. Inputs of the first norm are 0.3 off with mean square 0.09 + e: distances
    0.3 / (0.3 + 0.1) and ln e / (ln e + 0.1). Nobody has told how the source answers each class, so the prior stands
    for the stream's shares, of concentration √(1 − 0.610864 / ln 2).
    """
    seen = Signals(80.0)
    source, adapted = torch.tensor([[0.8, 0.2], [0.6, 0.4]]).log(), torch.tensor([[0.8, 0.2], [0.3, 0.7]]).log()
    inputs = torch.tensor([[0.3], [0.09 + math.e]]).double()
    which, phi = seen.add(Look(source, source, inputs), adapted, 0.25, 2)
    assert which.tolist() == [False, True]
    assert phi.shape == (1, len(FEATURES))
    plain, by_means, by_variances = phi[0, : len(STRAIGHT)].view(3, -1)
    torch.testing.assert_close(phi, with_waves(phi[:, : len(STRAIGHT)]))
    torch.testing.assert_close(by_means, plain * 0.75)
    torch.testing.assert_close(by_variances, plain / 1.1)
    assert dict(zip(SIGNS, plain.tolist(), strict=True)) == pytest.approx(
        {
            "one": 1.0,
            "source entropy": (0.500402 + 0.673012) / 2 / math.log(2),
            "adapted entropy": (0.500402 + 0.610864) / 2 / math.log(2),
            "source concentration": 1.0,
            "adapted concentration": 0.0,
            "distance of histograms": 0.5,
            "drift": 0.25,
            "share that differs": 0.5,
            "concentration of the stream": math.sqrt(1 - 0.610864 / math.log(2)),
            "adapted model's preference for its own answer": 0.4,
            "source model's preference for its own answer": 0.2,
            "source model's preference, its prior corrected": 0.555556,
            "source's share of the source's answer": 1.0,
            "source's share of the adapted answer": 0.0,
            "adapted share of the source's answer": 0.5,
            "adapted share of the adapted answer": 0.5,
            "stream's share of the source's answer": 0.7,
            "stream's share of the adapted answer": 0.3,
            "source model's preference, corrected by the stream's shares": 0.555556,
        },
        abs=1e-6,
    )


def test_waves_are_a_gaussian_kernel_of_width_one():
    """Their products are 0.1 · exp(−r² / 2) at a distance of r, but for the draw: 0.1, 0.0607 and 0.0135 at 0, 1, 2."""
    points = torch.zeros(3, len(STRAIGHT)).double()
    points[1, 0], points[2, 5] = 1.0, 2.0
    waves = with_waves(points)[:, len(STRAIGHT) :]
    assert HEIGHT == 0.1
    torch.testing.assert_close(waves @ waves[0], torch.tensor([0.1, 0.0607, 0.0135]).double(), atol=0.01, rtol=0)


def test_rule_can_say_that_two_signs_help_together_and_harm_apart():
    """A gain of 1 where two signs are alike and −1 where one is there alone, 10,000 times each: no sum says so.

    The kernel's part for that pattern is 0.1 · (1 − 2 e^(−1/2) + e^(−1)) = 0.0155, so of the gains it keeps
    155 / (155 + 3) = 98 %, but for the draw of the waves.
    """
    both = torch.tensor([[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]]).double()
    straight = torch.zeros(4, len(STRAIGHT)).double()
    straight[:, 0], straight[:, 1:3] = 1.0, both
    gains, phi = torch.tensor([1.0, 1.0, -1.0, -1.0]).double(), with_waves(straight)
    none, few = Answers.none(2, 2), slice(len(STRAIGHT))
    sums = Sums(1e4 * phi.T @ phi, 1e4 * phi.T @ gains, none)
    alone = Sums(sums.squares[few, few], sums.gains[few], none)
    start = torch.zeros(len(FEATURES)).double()
    assert (phi @ solved(sums, 3.0, start).weights * gains > 0.95).all()
    assert (phi[:, few] @ solved(alone, 3.0, start[few]).weights).abs().max() < 1e-9


def test_rule_of_another_version_says_what_to_do():
    old = Rule(torch.zeros(57).double(), torch.zeros(57, 57).double())
    with pytest.raises(ConfigError, match="of 57 features, where this version of acclimate has 357; learn"):
        Guard(net(), adapter=AdapterRecipe(Turning), calibrated=True, rule=old)


def test_signals_forget_e_fold_after_a_window_of_images():
    seen, same, other = Signals(10.0), torch.tensor([[2.0, 0.0]] * 10), torch.tensor([[0.0, 2.0]] * 10)
    look = Look(same, same, torch.zeros(2, 0))
    seen.add(look, other, 0.0, 10)
    seen.add(look, same, 0.0, 10)
    e = torch.tensor(-1.0, dtype=torch.float64).exp()
    torch.testing.assert_close(seen.means["differ"], e / (1 + e))


def test_source_sees_how_far_the_inputs_of_its_first_norm_are():
    """Running mean 1 and variance 4: inputs 3 and 7 have mean (2 + 6) / 2 / 2 = 2 and mean square (1 + 9) / 2 = 5."""
    norm = nn.BatchNorm1d(1, eps=0.0)
    norm.running_mean.fill_(1.0)
    norm.running_var.fill_(4.0)
    source = Source(Adapter(nn.Sequential(norm, nn.Linear(1, 2)).eval()))
    look = source.look(torch.tensor([[3.0], [7.0]]))
    torch.testing.assert_close(look.inputs, torch.tensor([[2.0], [5.0]]).double())
    bare = Source(Adapter(nn.Linear(1, 2))).look(torch.zeros(1, 1))
    assert bare.inputs.shape == (2, 0)  # without norms there is nothing to see


class Unused(nn.Module):
    """Has a linear layer that it does not use."""

    def __init__(self):
        super().__init__()
        self.never = nn.Linear(5, 2)

    def forward(self, x):
        return x[:, :3]


class Tokens(nn.Module):
    """Classifies the mean of what its head says of each token."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 3)

    def forward(self, x):
        return self.head(x).mean(1)


def test_source_sees_what_its_head_is_given():
    x = torch.tensor([[1.0, -2.0, 3.0], [0.0, 4.0, 0.0]])
    deep = Source(Adapter(nn.Sequential(nn.ReLU(), nn.Linear(3, 2)))).look(x)
    torch.testing.assert_close(deep.features, torch.tensor([[1.0, 0.0, 3.0], [0.0, 4.0, 0.0]]))
    headless = Source(Adapter(nn.Identity())).look(x)  # logits, less 2/3 and 4/3
    torch.testing.assert_close(headless.features, torch.tensor([[1, -8, 7], [-4, 8, -4]]) / 3)
    assert Source(Adapter(Unused())).look(x).features.tolist() == [[0.0] * 5] * 2
    tokens = Source(Adapter(Tokens())).look(torch.tensor([[[1.0, 2.0], [3.0, 6.0]]]))
    assert tokens.features.tolist() == [[2.0, 4.0]]
    for net in (nn.Sequential(nn.ReLU(), nn.Linear(3, 2)), nn.Identity(), Unused()):
        look = Source(Adapter(net)).look(x)
        assert look.features.shape[1] == width(net, look.logits.shape[1])


def test_guard_that_trusts_everything_is_the_adapter():
    x, plain, watched = images(), Turning(net(), step=3.0), guard(worth=1.0)
    for _ in range(5):
        assert torch.equal(watched(x), plain(x))
        assert not watched.figures["stepped_in"]


def test_guard_trusts_nobody_before_a_number_of_images():
    x, watched = images(8), guard(worth=1.0, minimum=20)
    trusted = []
    for _ in range(4):
        watched(x)
        trusted.append(watched.trusted)
    assert trusted == [False, False, True, True]


def test_whoever_falls_soon_waits_twice_as_long_and_whoever_served_long_does_not():
    """A wait of 8 images, batches of 8: a fall within 80 images of its start makes it 16, one after 320 of these 8."""
    x, watched = images(8), guard(step=torch.pi / 2 + 0.1, worth=1.0, minimum=8, window=1.0, every=1)

    def waited():
        for seen in range(8, 1000, 8):
            watched(x)
            if watched.trusted:
                return seen
        return None

    def fall():
        watched.inner.turn.fill_(torch.pi)
        watched.rule = trusting(-1.0)
        watched(x)
        watched.rule = trusting(1.0)

    assert waited() == 8
    fall()
    assert (watched.trusted, watched.wait, waited()) == (False, 16, 16)
    fall()
    assert (watched.wait, waited()) == (32, 32)
    watched.images = 10 * 32
    fall()
    assert (watched.wait, waited()) == (8, 8)


def test_guard_estimates_the_gain_by_hand():
    """A window of 8 images: after a batch of 8 in which all differ, each worth 0.5, one of 8 in which none does.

    The second has the weight 8, the first 8 / e still, so 0.5 / (1 + e) = 0.13447 remain.
    """
    x, watched = images(8), guard(step=torch.pi, worth=0.5, window=8.0, least=1.0)
    watched(x)
    assert watched.figures["gain"] == pytest.approx(0.5)
    watched(x)
    assert watched.figures["gain"] == pytest.approx(0.134471, abs=1e-5)
    assert watched.seen.shown[0] == pytest.approx(0.268941, abs=1e-5)


def test_guard_doubts_what_its_rule_is_not_sure_of():
    """Both differ on every image, each worth 0.5 with a standard error of 0.2: surely 0.3, or 0.1 for two."""
    rule = trusting(0.5)
    rule.spread[0, 0] = 0.04

    def trusts(doubt, least):
        recipe = AdapterRecipe(Turning, {"step": 2.0})
        watched = Guard(
            net(), adapter=recipe, calibrated=True, rule=rule, doubt=doubt, least=least, minimum=1, agreement=0.0
        )
        watched(images())
        return watched.trusted

    assert trusts(1.0, 0.29)
    assert not trusts(1.0, 0.31)
    assert trusts(2.0, 0.09)
    assert not trusts(2.0, 0.11)


def test_guard_that_trusts_nothing_is_the_source_model():
    x, watched = images(), guard(worth=-1.0)
    for _ in range(5):
        assert torch.equal(watched(x), net()(x))
        assert watched.figures["stepped_in"]
    assert watched.inner.turn == 0  # started anew after every trial


def test_guard_leaves_an_adapter_that_loses_a_share_of_what_both_differ_on_and_a_little_of_all():
    """Both differ on every image and a rule says that 0.3 of them are lost, which is more than 0.2 of them and 0.09."""

    def leaves(margin, least, most=1.0):
        watched = guard(step=2.0, worth=-0.3, margin=margin, least=least, most=most)
        watched.trusted = True
        watched(images())
        return not watched.trusted

    assert leaves(0.2, 0.09)
    assert not leaves(0.2, 0.11)
    assert leaves(0.2, 0.11, most=0.18)  # as 0.3 is more than 0.18 of all images and 0.11
    assert not leaves(0.2, 0.11, most=0.2)


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


def test_whoever_agrees_less_than_half_as_often_as_guessing_goes_back_whatever_the_rule_says():
    """Two classes: guessing agrees on half of the images, so whoever agrees on less than a quarter goes back."""

    def trusts(agreeing):
        watched = guard(step=0.0, worth=1.0, minimum=8, agreement=0.5)
        x = images(8)
        adapted = torch.where(torch.arange(8).unsqueeze(1) < agreeing, net()(x), -net()(x))
        watched.inner.forward = lambda x: adapted
        watched(x)
        return watched.trusted

    assert trusts(agreeing=2)
    assert not trusts(agreeing=1)


def test_who_is_not_trusted_gives_the_answers_that_are_worth_more():
    """By a half turn all answers differ, each worth its preference less 0.5: 0.6 is heard, 0.2 is not."""
    n = len(FEATURES)
    rule = Rule(torch.zeros(n).double(), torch.zeros(n, n).double())
    rule.weights[SIGNS.index("one")] = -0.5
    rule.weights[SIGNS.index("adapted model's preference for its own answer")] = 1.0
    probabilities = torch.tensor([[0.8, 0.2], [0.6, 0.4]])  # of the source model; the adapter's are the other way round
    x = probabilities.log()
    watched = Guard(
        net(),
        adapter=AdapterRecipe(Turning, {"step": torch.pi}),
        calibrated=True,
        rule=rule,
        minimum=3,
        least=1.0,
        agreement=0.0,
    )
    first = watched(x)
    watched.inner.turn.zero_()
    torch.testing.assert_close(first, x)  # too early
    torch.testing.assert_close(watched(x), torch.stack([-x[0], x[1]]))
    assert not watched.trusted
    assert watched.figures["stepped_in"]


def test_guard_lets_an_adapter_learn_that_neither_gains_nor_loses_much():
    x, watched = images(), guard(step=0.1, worth=1.0, least=0.1)
    for _ in range(5):
        assert torch.equal(watched(x), net()(x))
    assert torch.allclose(watched.inner.turn, torch.tensor(0.5))


@pytest.mark.parametrize(("size", "asked"), [(9, [9, 3, 3, 3, 3]), (4, [4, 1, 1, 2, 1]), (1, [1, 0, 0, 1, 0])])
def test_guard_asks_the_source_model_of_every_third_image_only(size, asked):
    """Once it trusts, and however images come: in batches of four those numbered 6, 9, 12 and 15, 18 and so on."""
    calls, watched, x = [], guard(worth=1.0, every=3), images(size)

    class Counting(Source):
        def look(self, x):
            calls[-1] += len(x)
            return super().look(x)

    watched.source = Counting(watched.inner)
    for _ in asked:
        calls.append(0)
        watched(x)
    assert calls == asked


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
    assert DEFAULT.weights.shape == (len(FEATURES),)
    which, phi = seen.add(Look(logits, logits, torch.zeros(2, 0)), logits, 0.5, 1)
    assert not which.any()
    assert len(phi) == 0


def test_guard_that_does_not_trust_still_has_something_to_share():
    model, x = nn.Linear(2, 2), images()
    watched = Guard(model, adapter=AdapterRecipe(ADAPTERS["em"].load()), calibrated=True, rule=trusting(0.0), least=1.0)
    watched.adapt(x)
    assert not watched.trusted
    assert watched.shared()["prior"].shape == (2,)
    assert torch.equal(watched.predict(x), model(x))
