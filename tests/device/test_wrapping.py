"""Any torch classifier: every adapter around every kind of model works, or says why it cannot."""

import copy
import io
import warnings
from collections import Counter
from functools import cache

import pytest
import torch
from torch import nn

import acclimate as ac
import wrappers
from acclimate import params, trees
from acclimate.contracts import Adapter
from acclimate.errors import (
    AcclimateError,
    ConfigError,
    ForeignState,
    MissingKnowledge,
    UnsupportedInput,
    UnsupportedModel,
)
from acclimate.experiment.catalog import ADAPTERS
from classifiers import BATCH, CLASSES, MODELS, Tokens, call, cnn, images, knowledge, labelled, tabular, tokens

BN, NORM = "adapts batch-normalisation layers and", "adapts normalisation layers and"
COPIES = "makes augmented copies of images"
# What does not work, and the reason that is given; everything else works.
REFUSED = {
    **{(kind, "bn-adapt"): BN for kind in ("group norm", "no norm", "token ids")},
    **{("no norm", name): NORM for name in ("tent", "eata", "tta-grad", "guard")},
    **{(kind, name): COPIES for kind in ("1-d signal", "tabular", "token ids") for name in ("memo", "fedicon", "ttt")},
    ("float64", "fedicon"): "of float32; found [6, 3, 8, 8] of float64",
}


@cache
def outcome(kind, name):
    """What becomes of one cell: 'works', or what is said."""
    make, batch = MODELS[kind]
    model, given = make(), batch()
    before = trees.dump(params.of(model))
    try:
        adapted = ac.wrap(model, name, **knowledge(name, model, given))
        first, logits = adapted.state(), call(adapted, given)
    except AcclimateError as error:
        return str(error)
    assert logits.shape == (BATCH, CLASSES)
    assert logits.isfinite().all()
    assert logits.dtype == next(model.parameters()).dtype
    assert trees.dump(params.of(model)) == before  # a copy was adapted
    other = call(adapted, given)
    adapted.reset()
    assert trees.equal(adapted.state(), first)
    assert other.isfinite().all()
    return "works"


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("kind", MODELS)
def test_wrapped_model_works_or_says_why(kind, name):
    said = outcome(kind, name)
    if (kind, name) in REFUSED:
        assert REFUSED[kind, name] in said
        assert "\n" not in said
    else:
        assert said == "works"


def test_wrapped_models_are_counted():
    """docs/engineer.md has these numbers."""
    counts = Counter(outcome(kind, name) == "works" for kind in MODELS for name in ADAPTERS)
    assert counts == {True: len(MODELS) * len(ADAPTERS) - len(REFUSED), False: len(REFUSED)}


def test_wrapped_model_is_never_in_training_mode():
    adapted, x = ac.wrap(cnn(), "none"), images()
    before = adapted(x)
    assert adapted.train() is adapted
    assert not any(module.training for module in adapted.adapter.net.modules())
    nn.Sequential(adapted).train()
    assert torch.equal(adapted(x), before)


def test_wrapped_model_predicts_without_learning_and_learns_without_predicting():
    adapted, x = ac.wrap(cnn(), "tent", lr=0.1), images()
    before, first = adapted.state(), adapted.predict(x)
    assert trees.equal(adapted.state(), before)
    adapted.adapt(x)
    assert not trees.equal(adapted.state(), before)
    assert not torch.equal(adapted.predict(x), first)


def test_wrapped_model_adapts_in_inference_mode_too():
    model = cnn()
    with torch.inference_mode():
        x = images() + 0  # a tensor of inference mode
        inside = ac.wrap(model, "tent", lr=0.1)
        logits = [inside(x), inside(x)]
    outside = ac.wrap(cnn(), "tent", lr=0.1)
    assert torch.equal(logits[0], outside(images()))
    assert torch.equal(logits[1], outside(images()))


def test_wrapped_state_is_saved_to_one_file_and_foreign_ones_are_refused_by_name(tmp_path):
    adapted, x, path = ac.wrap(cnn(), "tent", lr=0.1), images(), tmp_path / "state.safetensors"
    adapted(x)
    adapted.save(path)
    state = adapted.state()
    adapted(x)
    adapted.load(path)
    assert trees.equal(adapted.state(), state)
    fresh = ac.wrap(cnn(), "tent", lr=0.1)
    fresh.load(path)
    assert torch.equal(fresh(x), adapted(x))
    with pytest.raises(
        ForeignState, match=r"is a state of 'tent' around Sequential .*; this is 'em' around Sequential"
    ):
        ac.wrap(cnn(), "em").load(path)
    trained_on = cnn()
    with torch.no_grad():
        trained_on[0].weight += 1
    with pytest.raises(ForeignState, match="is a state of 'tent' around Sequential"):
        ac.wrap(trained_on, "tent").load(path)
    path.write_bytes(b"something else")
    with pytest.raises(ForeignState, match=r"expected a state written by save\(\)"):
        adapted.load(path)


def saved(path, *adapter, **options):
    """A state after a batch, and the file that has it."""
    adapted = ac.wrap(cnn(), *adapter, **options)
    adapted(images())
    adapted.save(path)
    return adapted.state()


@pytest.mark.parametrize(
    ("theirs", "ours", "said"),
    [
        (("tent", {"lr": 1e-3}), ("tent", {"lr": 0.5}), "with other options: lr 0.001, here 0.5; give the same ones"),
        (("tent", {}), ("tent", {"optimizer": "sgd"}), "optimizer 'adam', here 'sgd'"),
        (("tent", {"guard": True}), ("bn-adapt", {"guard": True}), "adapter.name 'tent', here 'bn-adapt'"),
        (("tent", {"guard": True}), ("tent", {"guard": True, "lr": 0.5}), "adapter.lr 0.001, here 0.5"),
        (("tent", {"guard": True}), ("tent", {"guard": {"every": 5}}), "every 3, here 5"),
    ],
)
def test_state_of_other_options_is_refused_and_changes_nothing(tmp_path, theirs, ours, said):
    saved(tmp_path / "state", theirs[0], **theirs[1])
    adapted = ac.wrap(cnn(), ours[0], **ours[1])
    adapted(images())
    before = trees.dump(adapted.state())
    with pytest.raises(ForeignState, match=said):
        adapted.load(tmp_path / "state")
    assert trees.dump(adapted.state()) == before


def test_state_of_an_earlier_version_is_loaded_if_it_fits(tmp_path):
    """It does not say its options."""
    state = saved(tmp_path / "state", "tent", lr=1e-3)
    signed = trees.load((tmp_path / "state").read_bytes())
    del signed["options"]
    (tmp_path / "state").write_bytes(trees.dump(signed))
    adapted = ac.wrap(cnn(), "tent", lr=1e-3)
    adapted.load(tmp_path / "state")
    assert trees.equal(adapted.state(), state)
    for options, said in (({"lr": 0.5}, "lr 0.001, here 0.5"), ({"optimizer": "sgd"}, "amsgrad")):
        adapted = ac.wrap(cnn(), "tent", **options)
        before = trees.dump(adapted.state())
        with pytest.raises(ForeignState, match=f"its optimizer has other settings: .*{said}"):
            adapted.load(tmp_path / "state")
        assert trees.dump(adapted.state()) == before
        assert adapted(images()).isfinite().all()


def without(nest, *path):
    """A nest that lacks something."""
    if len(path) == 1:
        return {key: item for key, item in nest.items() if key != path[0]}
    return {**nest, path[0]: without(nest[path[0]], *path[1:])}


DAMAGES = {
    "no state": lambda signed: without(signed, "state"),
    "no tensors": lambda signed: without(signed, "state", "moving"),
    "a tensor less": lambda signed: without(signed, "state", "moving", "1.bias"),
    "no optimizer": lambda signed: {**signed, "state": {**signed["state"], "optimizer": None}},
    "an optimizer without a rate": lambda signed: {
        **signed, "state": {**signed["state"], "optimizer": {
            "state": {}, "param_groups": [without(signed["state"]["optimizer"]["param_groups"][0], "lr")]}}},
    "other shapes": lambda signed: trees.transform(lambda t: torch.ones(7), signed),
    "no numbers": lambda signed: trees.transform(lambda t: t * torch.nan, signed),
    "a list": lambda signed: {**signed, "state": [1, 2]},
    "options that are a list": lambda signed: {**signed, "options": [1]},
    "options that are tensors": lambda signed: {**signed, "options": {"lr": torch.ones(2)}},
    "no adapter": lambda signed: without(signed, "adapter"),
}  # fmt: skip


@pytest.mark.parametrize("how", DAMAGES)
def test_state_from_which_nothing_can_go_on_is_refused_and_changes_nothing(tmp_path, how):
    saved(tmp_path / "state", "tent")
    signed = trees.load((tmp_path / "state").read_bytes())
    (tmp_path / "state").write_bytes(trees.dump(DAMAGES[how](signed)))
    adapted, other = ac.wrap(cnn(), "tent"), ac.wrap(cnn(), "tent")
    adapted(images()), other(images())
    with pytest.raises(ForeignState, match="state"):
        adapted.load(tmp_path / "state")
    assert trees.equal(adapted.state(), other.state())
    assert torch.equal(adapted(images()), other(images()))


def test_state_that_begins_with_something_infinite_may_have_it():
    class Least(Adapter):
        def __init__(self, net: nn.Module) -> None:
            super().__init__(net)
            self.least = torch.tensor(torch.inf)

        def state(self):
            return {"least": self.least.clone()}

        def load_state(self, state):
            self.least = state["least"].clone()

    adapted = ac.wrap(cnn(), Least)
    signed, adapted.adapter.least = adapted.signed(), torch.tensor(1.0)
    adapted.load_signed(signed, "a file")
    assert adapted.adapter.least == torch.inf


class Two(nn.Module):
    """Images and a mask, by name."""

    def __init__(self):
        super().__init__()
        self.body = cnn()

    def forward(self, x, mask):
        return self.body(x * mask)


@pytest.mark.parametrize("part", ["x", "mask"])
def test_guard_sees_what_is_not_finite_in_any_of_several_inputs(part):
    given = {"x": images(), "mask": torch.ones(BATCH, 1, 1, 1)}
    adapted, alone = (ac.wrap(Two(), "tent", guard=True) for _ in range(2))
    for _ in range(4):
        adapted(**given), alone(**given)
    given[part] = given[part].clone().index_fill_(0, torch.tensor([2]), torch.nan)
    rest = torch.tensor([0, 1, 3, 4, 5])
    assert torch.equal(adapted.predict(**given)[2], torch.zeros(CLASSES))
    logits = adapted(**given)
    assert torch.equal(logits[rest], alone(**{name: value[rest] for name, value in given.items()}))
    assert torch.equal(logits[2], torch.zeros(CLASSES))  # nothing is known of it
    assert adapted.intervened
    assert adapted.adapter.images == alone.adapter.images == 5 * BATCH - 1
    adapted.adapt(**given), alone.adapt(**{name: value[rest] for name, value in given.items()})
    state = adapted.state()
    assert trees.equal(state, alone.state())
    given[part] = torch.full_like(given[part], torch.nan)
    assert torch.equal(adapted(**given), torch.zeros(BATCH, CLASSES))
    adapted.adapt(**given)
    assert trees.equal(adapted.state(), state)


def test_wrapping_a_scripted_model_says_what_to_do():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(tabular())
    with pytest.raises(UnsupportedModel, match="scripting hides the layers of a model; wrap the module that was"):
        ac.wrap(scripted, "em")


def test_wrapped_compiled_model_gives_the_same_as_the_module_inside():
    make, batch = MODELS["compiled"]
    one, two = ac.wrap(make(), "tent", lr=0.1), ac.wrap(cnn(), "tent", lr=0.1)
    x = batch()
    one(x), two(x)
    assert torch.equal(one(x), two(x))


def test_wrapped_model_in_half_precision_adapts_in_float32():
    model, x = cnn().bfloat16(), images().bfloat16()
    adapted = ac.wrap(model, "tent", lr=1e-4)
    wide = ac.wrap(cnn().bfloat16().float(), "tent", lr=1e-4)
    assert torch.equal(adapted(x), wide(x.float()).bfloat16())
    assert all(tensor.dtype == torch.float32 for tensor in adapted.state()["moving"].values())


def test_wrapped_model_takes_inputs_by_position_or_by_name():
    model, given = Tokens(), tokens()
    expected = model(**given).logits
    for name in ("none", "tent-upfl"):  # the second one cuts its batch into pieces
        adapted = ac.wrap(model, name, **({"batch_size": 2} if name == "tent-upfl" else {}))
        torch.testing.assert_close(adapted.predict(**given), expected)
        torch.testing.assert_close(adapted.predict(*given.values()), expected)
        assert adapted(**given).shape == expected.shape

    class ByName(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = cnn()

        def forward(self, *, pixel_values):
            return self.body(pixel_values)

    assert ac.wrap(ByName(), "memo")(pixel_values=images()).shape == (BATCH, CLASSES)


def test_adapter_may_keep_a_copy_of_the_model_and_pick_examples():
    class Both(Adapter):
        def __init__(self, net: nn.Module) -> None:
            super().__init__(net)
            self.source = copy.deepcopy(net)

        def predict(self, x: torch.Tensor) -> torch.Tensor:
            whole = x.flatten(1).isfinite().all(1)
            return (super().predict(x[whole]) + self.source(x[whole])) / 2

    expected = Tokens()(**tokens()).logits
    torch.testing.assert_close(ac.wrap(Tokens(), Both).predict(**tokens()), expected)


def test_wrapped_model_says_what_is_wrong_with_a_batch_or_an_answer():
    adapted = ac.wrap(Tokens(), "none")
    with pytest.raises(UnsupportedInput, match=r"a row per example; found \[6, 7\], \[5, 7\]"):
        adapted(input_ids=tokens()["input_ids"], attention_mask=torch.ones(5, 7))
    with pytest.raises(UnsupportedInput, match="found no tensor"):
        adapted([1, 2])
    dense = nn.Conv2d(3, 4, 1)
    with pytest.raises(UnsupportedModel, match=r"expected logits \[batch, classes\] of Conv2d.*found \[6, 4, 8, 8\]"):
        ac.wrap(dense, "none")(images())


def test_wrap_says_how_to_get_what_an_adapter_needs():
    with pytest.raises(MissingKnowledge) as error:
        ac.wrap(cnn(), "atp")
    assert str(error.value) == (
        "adapter 'atp' needs rates: knowledge = ac.calibrate(model, 'atp', batches) with a few labelled batches, "
        "then ac.wrap(model, 'atp', **knowledge)"
    )
    with pytest.raises(
        MissingKnowledge, match=r"needs loss_net, inner_step: it comes from training \(fedtta, .*export"
    ):
        ac.wrap(cnn(), "fedtta")


def test_wrap_takes_an_adapter_of_ones_own():
    class Doubled(Adapter):
        def __init__(self, net: nn.Module, *, factor: int = 2) -> None:
            super().__init__(net)
            self.factor = factor

        def predict(self, x: torch.Tensor) -> torch.Tensor:
            return self.factor * super().predict(x)

    x = images()
    torch.testing.assert_close(ac.wrap(cnn(), Doubled, factor=3)(x), 3 * ac.wrap(cnn(), "none")(x))


def test_wrapped_model_can_be_copied_and_listed():
    adapted = ac.wrap(cnn(), "tent")
    adapted(images())
    torch.save(adapted.state_dict(), io.BytesIO())
    assert sum(1 for _ in adapted.parameters()) == sum(1 for _ in cnn().parameters())
    assert copy.deepcopy(adapted.method) == adapted.method


@pytest.mark.parametrize("name", ["atp", "bbse", "eata", "surgical", "knn-per"])
def test_calibrate_gives_what_wrap_needs(name):
    model = cnn()
    before, drawn = trees.dump(params.of(model)), torch.get_rng_state()
    found = ac.calibrate(model, name, labelled(images()), rounds=2)
    assert trees.dump(params.of(model)) == before
    assert torch.equal(torch.get_rng_state(), drawn)
    assert trees.equal(found, ac.calibrate(model, name, labelled(images()), rounds=2))
    assert ac.wrap(model, name, **found)(images()).shape == (BATCH, CLASSES)


def test_calibrate_with_several_clients_is_federated():
    model, (x, y) = cnn(), labelled(images())[0]
    whole = ac.calibrate(model, "bbse", [(x, y)])["confusion"]
    parts = ac.calibrate(model, "bbse", {"north": [(x[:2], y[:2])], "south": [(x[2:], y[2:])]})["confusion"]
    assert torch.equal(whole, parts)
    assert whole.sum() == BATCH
    own = ac.calibrate(model, "knn-per", {"north": labelled(x), "south": labelled(x, 3)})
    assert [len(found["memory"]["labels"]) for found in own.values()] == [10, 15]  # four fifths of 12 and 18


def test_calibrate_takes_inputs_by_name():
    model, given = Tokens(), tokens()
    found = ac.calibrate(model, "bbse", [(given, torch.arange(BATCH) % CLASSES)])
    predicted = model(**given).logits.argmax(1)
    assert torch.equal(found["confusion"].sum(1), torch.bincount(predicted, minlength=CLASSES).double())


def test_calibrate_equals_the_phase_that_the_engine_runs():
    import battery

    known, people = battery.trained(), battery.population()
    model = params.load(battery.build()(), known.of(None)["model"])
    data = {
        client: [(examples.x, examples.y)]
        for client, (_, held) in people.source.items()
        for examples in [people.examples(held)]
    }
    rates = ac.calibrate(model, "atp", data, rounds=2)["rates"]
    outcome = battery.run_phase("atp", rounds=2, cohort="all", known=known)
    torch.testing.assert_close(rates, outcome.algorithm.export(outcome.server, None, 0)["rates"])


@pytest.mark.parametrize(
    ("name", "data", "error", "said"),
    [
        ("atp", [], UnsupportedInput, r"expected batches that are pairs \(inputs, labels\), found none"),
        ("atp", [torch.rand(2, 3)], UnsupportedInput, "found Tensor"),
        ("atp", {}, UnsupportedInput, "found no client"),
        ("bbse", [(images(), torch.full((BATCH,), 9))], UnsupportedInput, "expected labels 0 to 3.*has 9 to 9"),
        ("bbse", [(images(), torch.zeros(0))], UnsupportedInput, "batch 1 has 6 examples, 0 labels"),
        ("bbse", [(images()[:0], torch.zeros(0))], UnsupportedInput, "found batches without any"),
        ("bbse", [(images(), torch.rand(BATCH))], UnsupportedInput, r"whole numbers, .* batch 1 has float32 \[6\]"),
        ("bbse", [(images(), torch.eye(BATCH).long())], UnsupportedInput, r"one for each example; .* int64 \[6, 6\]"),
        (
            "bbse",
            [(images(), torch.zeros(1).long()), (images(), torch.zeros(11).long())],
            UnsupportedInput,
            "batch 1 has 6 examples, 1 labels",
        ),
        (
            "bbse",
            [*labelled(images()), ({"x": images()}, torch.zeros(5).long())],
            UnsupportedInput,
            "batch 3 has 6 examples, 5 labels",
        ),
        ("fedtta", labelled(images()), MissingKnowledge, "comes from training"),
        ("tnet", labelled(images()), AcclimateError, "did you mean 'tent'"),
    ],
)
def test_calibrate_says_what_is_wrong(name, data, error, said):
    with pytest.raises(error, match=said):
        ac.calibrate(cnn(), name, data)


def test_calibrate_takes_labels_that_are_whole_numbers_of_any_type():
    (x, y), *_ = labelled(images())
    expected = ac.calibrate(cnn(), "bbse", [(x, y)])["confusion"]
    for labels in (y.int(), y.to(torch.uint8), y.tolist()):
        assert torch.equal(ac.calibrate(cnn(), "bbse", [(x, labels)])["confusion"], expected)


def test_calibrate_of_an_adapter_around_another_gives_what_that_one_needs(monkeypatch):
    wrappers.list_them(monkeypatch)
    found = ac.calibrate(cnn(), "watched", labelled(images()), of="bbse", kind="soft")
    soft = ac.calibrate(cnn(), "bbse", labelled(images()), kind="soft")
    assert torch.equal(found["confusion"], soft["confusion"])
    assert ac.wrap(cnn(), "watched", of="bbse", **found)(images()).shape == (BATCH, CLASSES)
    with pytest.raises(ConfigError, match=r"bbse.knd: unknown key; did you mean 'kind'"):
        ac.calibrate(cnn(), "watched", labelled(images()), of="bbse", knd="soft")
    with pytest.raises(ConfigError, match=r"atp.lr: expected a number greater than 0; found -1"):
        ac.calibrate(cnn(), "atp", labelled(images()), lr=-1)


def test_calibrate_of_an_adapter_that_needs_nothing_is_empty():
    assert ac.calibrate(cnn(), "tent", labelled(images())) == {}
