"""Bundles: taken out of a run, loaded elsewhere with little more than torch."""

import hashlib
import json
import shutil
import subprocess
import sys
import textwrap

import pytest
import torch
from safetensors.torch import load_file, save_file

import acclimate as ac
import battery
from acclimate import trees
from acclimate.engine.executor import one_thread
from acclimate.engine.seeds import seed_call
from acclimate.errors import AcclimateError, ConfigError, MissingData, MissingKnowledge
from acclimate.experiment.catalog import ADAPTERS
from bundles import batch, exported
from classifiers import cnn, images, labelled

HEAVY = ("scipy", "sklearn", "pydantic", "typer", "yaml", "rich", "PIL", "pandas")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory):
    """One of every adapter, with what it answers to two batches in this process."""
    folder = tmp_path_factory.mktemp("bundles")
    x, answers = batch(), {}
    for name in ADAPTERS:
        adapted = exported(name, folder / name)
        with one_thread():  # two add up in another order
            for k in range(2):
                seed_call(k)
                answers[f"{name}-{k}"] = adapted(x).contiguous()
    save_file({"x": x.contiguous(), **answers}, folder / "answers.safetensors")
    return folder


def test_bundles_of_all_adapters_load_with_little_more_than_torch_and_answer_the_same(bundles):
    script = f"""
        import sys
        for name in {HEAVY}:
            sys.modules[name] = None  # importing it fails, as where it is not installed
        import torch
        import acclimate as ac
        from acclimate.engine.seeds import seed_call
        from safetensors.torch import load_file
        torch.set_num_threads(1)
        answers = load_file("answers.safetensors")
        for name in {list(ADAPTERS)}:
            adapted = ac.load(name)
            for k in range(2):
                seed_call(k)
                torch.testing.assert_close(adapted(answers["x"]), answers[f"{{name}}-{{k}}"], rtol=1e-5, atol=1e-6)
        print("same")
    """
    code = [sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(code, cwd=bundles, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "same", done.stderr


def test_load_imports_nothing_heavy_even_where_it_is_installed(bundles):
    script = (
        "import sys, acclimate\n"
        "assert 'torch' not in sys.modules\n"
        "ac = acclimate\n"
        "ac.load('tent'), ac.load('btfl'), ac.load('bbse')\n"
        f"print(sorted({{m.partition('.')[0] for m in sys.modules}} & set({HEAVY})))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=bundles, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_bundle_is_tensors_and_json(bundles):
    for file in (bundles / "fedtta").iterdir():
        content = file.read_bytes()
        assert json.loads(content) if file.suffix == ".json" else load_file(file)


def test_bundle_that_was_changed_or_is_none_is_refused(tmp_path):
    exported("em", tmp_path / "b")
    with pytest.raises(ConfigError, match="has a bundle already"):
        exported("em", tmp_path / "b")
    model = tmp_path / "b" / "model.safetensors"
    blob = model.read_bytes()
    model.write_bytes(blob[:-4] + bytes(4))
    with pytest.raises(MissingData, match=r"model.safetensors is not the file that was exported"):
        ac.load(tmp_path / "b")
    model.unlink()
    with pytest.raises(MissingData, match="expected a file of the bundle, found none"):
        ac.load(tmp_path / "b")
    with pytest.raises(MissingData, match=r"expected the manifest of a bundle .* make one: acclimate export"):
        ac.load(tmp_path)
    manifest = tmp_path / "b" / "manifest.json"
    whole = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({key: value for key, value in whole.items() if key != "classes"}))
    with pytest.raises(MissingData, match=r"manifest.json lacks classes; export the bundle again"):
        ac.load(tmp_path / "b")
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": "acclimate bundle 2"}))
    with pytest.raises(MissingData, match="found 'acclimate bundle 2'; a newer acclimate may read it"):
        ac.load(tmp_path / "b")


def put(manifest, place, value):
    """Write a value into a manifest, at a place such as method.options.lr."""
    *way, last = place.split(".")
    for key in way:
        manifest = manifest[key]
    manifest[last] = value


MANIFESTS = {  # what is written where, and what is said of it
    "files that are a list": ("files", [], r"manifest.json: expected a mapping as 'files', found \[\]"),
    "a method that is a name": ("method", "tent", "expected a mapping as 'method', found \"tent\""),
    "an origin that is a number": ("origin", 3, "expected a mapping as 'origin', found 3"),
    "a number of classes": ("classes", 10, "expected a list as 'classes', found 10"),
    "fewer classes": ("classes", ["one"], "the tensors are not those of the model"),
    "a shape of two": ("input.shape", [18, 18], r"expected null, or a shape \[channels, height, width\] as 'input'"),
    "a shape with a zero": ("input.shape", [1, 0, 18], r"expected null, or a shape .* as 'input'"),
    "a shape of words": ("input", "18x18", r"expected null, or a shape .* as 'input'"),
    "no input": ("input", None, "cannot be put together"),
    "no normalisation": ("normalisation", None, "cannot be put together"),
    "means of two channels": ("normalisation.mean", [0.5, 0.5], r"a mean and a std of each of 1 channel\(s\), found"),
    "a mean in words": ("normalisation.mean", ["x"], "cannot be put together"),
    "a negative batch size": ("batch size", -5, "expected 1 or more, or \"all\", as 'batch size', found -5"),
    "a batch size of yes": ("batch size", True, "as 'batch size', found true"),
    "an unknown option": ("method.options.lrr", 1, "cannot be put together .*'lrr'"),
    "options that are a list": ("method.options", [1], "cannot be put together"),
    "a rate in words": ("method.options.lr", "x", r"option 'lr': expected a number, found 'x'"),
    "steps in words": ("method.options.steps", "x", r"option 'steps': expected a number, found 'x'"),
    "no steps": ("method.options.steps", None, r"option 'steps': expected a number, found None"),
    "a method for sounds": ("method.takes", ["sounds"], "the method takes: expected .*; found sounds"),
    "a model without a name": ("model.name", [], "cannot be put together"),
    "an unknown option of the model": ("model.depth", 3, "cannot be put together .*'depth'"),
    "a phase that is a name": ("model.extended by", ["fedtta"], "cannot be put together"),
}


@pytest.mark.parametrize("how", MANIFESTS)
def test_malformed_manifest_is_refused_in_words(how, bundles, tmp_path):
    folder = shutil.copytree(bundles / "tent", tmp_path / "b")
    place, value, said = MANIFESTS[how]
    manifest = json.loads((folder / "manifest.json").read_text())
    put(manifest, place, value)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(MissingData, match=said):
        ac.load(folder)


def test_guarded_method_with_a_rate_in_words_is_refused(tmp_path):
    exported("guard", tmp_path / "b", adapter={"name": "tent", "lr": 0.1})
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    put(manifest, "method.options.adapter.lr", "x")
    (tmp_path / "b" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(MissingData, match="option 'lr': expected a number, found 'x'"):
        ac.load(tmp_path / "b")


def test_manifest_of_many_levels_is_refused(bundles, tmp_path):
    folder = shutil.copytree(bundles / "tent", tmp_path / "b")
    (folder / "manifest.json").write_text("[" * 100_000)
    with pytest.raises(MissingData, match="expected the manifest of a bundle"):
        ac.load(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "knowledge.safetensors"])
@pytest.mark.parametrize("blob", [b"", b"no tensors", trees.dump([1, 2])], ids=["nothing", "words", "a list"])
def test_file_of_a_bundle_that_holds_something_else_is_refused(name, blob, bundles, tmp_path):
    folder = shutil.copytree(bundles / "tent", tmp_path / "b")
    (folder / name).write_bytes(blob)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = hashlib.sha256(blob).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(MissingData, match=r"cannot be put together|are not those of the model"):
        ac.load(folder)


def test_tensors_are_compared_before_memory_is_taken_for_the_model(bundles, tmp_path):
    folder = shutil.copytree(bundles / "tent", tmp_path / "b")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["input"]["shape"] = [1, 100_000, 100_000]  # 8 TB
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(MissingData, match="the tensors are not those of the model"):
        ac.load(folder)


def test_comparing_the_tensors_of_a_model_neither_draws_nor_imports_much():
    """Torch would import sympy to draw the weights of a resnet that has no memory."""
    script = """
        import sys, torch
        from acclimate.device import bundle
        from acclimate.device.revive import Reviver
        from acclimate.experiment.catalog import MODELS
        drawn = torch.get_rng_state()
        normalisation = {"mean": [0.5] * 3, "std": [0.2] * 3}
        for name in MODELS:
            model = {"name": name, "extended by": []}
            told = {"model": model, "input": {"shape": [3, 32, 32]}, "classes": 10 * ["x"],
                    "normalisation": normalisation}
            with torch.device("meta"), bundle._NothingDrawn():
                net = bundle._empty(told, Reviver({}))
            assert {tensor.device.type for tensor in net.state_dict().values()} == {"meta"}
        assert torch.equal(drawn, torch.get_rng_state())
        print("sympy" in sys.modules)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "False", done.stderr


def test_options_that_are_methods_or_records_survive_a_bundle(tmp_path):
    one = exported("tta-grad", tmp_path / "one", term={"name": "fedprox", "mu": 0.5})
    assert ac.load(tmp_path / "one").adapter.term == one.adapter.term
    two = exported("fedicon", tmp_path / "two", contrast={"views": {"flip": 0.0}, "temperature": 0.5})
    assert ac.load(tmp_path / "two").adapter.contrast == two.adapter.contrast


PLUGIN = """
from acclimate.adapters.none import NoAdaptation
from torch import nn

class Louder(NoAdaptation):
    def predict(self, x):
        return 2 * super().predict(x)

class Net(nn.Module):
    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.fc = nn.Linear(324, num_classes)

    def forward(self, x):
        return self.fc(x.flatten(1))
"""


@pytest.fixture
def own_run(tmp_path, monkeypatch):
    """A finished run with a model and an adapter of the user's own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(PLUGIN)
    raw = battery.tiny(model="./mine.py:Net", systems=[{"name": "loud", "adapter": "./mine.py:Louder"}])
    return ac.run(ac.read(raw), workers=1, progress=False)


def test_load_imports_only_plugins_that_its_caller_lists_whatever_the_manifest_says(own_run, tmp_path):
    own_run.system("loud").export("b")
    with pytest.raises(ConfigError, match=r"'./mine.py:Net' is code outside acclimate, and nothing is imported that"):
        ac.load("b")
    with pytest.raises(ConfigError, match=r"'./mine.py:Louder' is code outside"):
        ac.load("b", plugins=["./mine.py:Net"])
    x = torch.rand(3, 1, 18, 18)
    loud = ac.load("b", plugins=["./mine.py:Net", "./mine.py:Louder"])
    quiet = loud.adapter.net(x)
    torch.testing.assert_close(loud(x), 2 * quiet)
    classes = [type(loud.adapter), type(loud.adapter.net)]
    torch.testing.assert_close(ac.load("b", plugins=classes)(x), 2 * quiet)
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    manifest["method"]["name"] = "os:system"
    (tmp_path / "b" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ConfigError, match="'os:system' is code outside"):
        ac.load("b", plugins=classes)


def test_run_with_plugins_is_opened_only_with_those_that_are_listed(own_run, call):
    with pytest.raises(ConfigError, match="is code outside acclimate"):
        ac.Run.open(own_run.name)
    listed = ["./mine.py:Net", "./mine.py:Louder"]
    assert ac.Run.open(own_run.name, plugins=listed).table() == own_run.table()
    words = ["export", "tiny", "loud", "-o", "out"]
    code, _, err = call(*words)
    assert code == 2
    assert "plugins=['./mine.py:Net']" in err
    code, out, _ = call(*words, "--plugin", listed[0], "--plugin", listed[1])
    assert code == 0
    assert "written: out/manifest.json" in out


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run with a tuned, a selected and a personal system."""
    raw = battery.tiny(
        phases=[],
        systems=[
            {"name": "tuned", "phases": [{"name": "fedavg", "rounds": 2}], "adapter": "tent",
             "tune": {"lr": [0.5, 0.0001]}},
            {"name": "kept", "phases": [{"name": "fedavg", "rounds": 2, "keep_every": 1}], "adapter": "none",
             "select": "best-validation"},
            {"name": "near", "phases": [{"name": "fedrod", "rounds": 1}, {"name": "knn-per", "rounds": 1}],
             "adapter": "knn-per"},
        ],
        seeds=[0, 1],
    )  # fmt: skip
    raw["scenario"]["new"] = False
    return ac.run(raw, runs=tmp_path_factory.mktemp("runs"), workers=1, progress=False)


def test_exported_system_is_what_was_tested(finished, tmp_path):
    """The bundle's own predictions on a client's stream are as often right as the run measured."""
    experiment, seed = finished.experiment, 1
    people = experiment.scenario.made.build(seed)
    finished.system("tuned").export(tmp_path / "b", seed=seed)
    manifest = json.loads((tmp_path / "b" / "manifest.json").read_text())
    assert manifest["origin"] == {"run": finished.name, "system": "tuned", "seed": 1, "client": None}
    assert manifest["method"]["options"]["lr"] in (0.5, 0.0001)
    right = total = 0
    for stream in (stream for stream in people.streams if stream.name == "label"):
        adapted = ac.load(tmp_path / "b")
        for slot in stream.slots(10):
            examples = people.examples(slot.parts[0])
            right += int((adapted(examples.x).argmax(1) == examples.y).sum())
            total += len(examples)
    (record,) = [r for r in finished.table() if (r["system"], r["stream"], r["seed"]) == ("tuned", "label", seed)]
    assert record["accuracy"] == right / total


def test_exported_system_may_be_a_clients_own_or_the_selected_round(finished, tmp_path):
    with pytest.raises(MissingKnowledge, match=r"memory differs from client to client; say whose: --client K"):
        finished.system("near").export(tmp_path / "near")
    with pytest.raises(MissingKnowledge, match=r"client 99 has no .* since it never took part"):
        finished.system("near").export(tmp_path / "near", client=99)
    finished.system("near").export(tmp_path / "near", client=1)
    assert json.loads((tmp_path / "near" / "manifest.json").read_text())["origin"]["client"] == 1
    assert ac.load(tmp_path / "near")(batch()).shape == (7, 10)
    finished.system("kept (best validation)").export(tmp_path / "kept")
    finished.system("none").export(tmp_path / "none")  # added to compare with


def test_run_says_what_it_has(finished, tmp_path):
    with pytest.raises(AcclimateError, match="has no system 'tund'; did you mean 'tuned'"):
        finished.system("tund")
    with pytest.raises(ConfigError, match="seed: the run has 0, 1; found 7"):
        finished.system("tuned").export(tmp_path / "b", seed=7)
    with pytest.raises(AcclimateError, match="no run 'nothing'"):
        ac.Run.open("nothing", finished.runs)


def test_export_of_a_model_that_left_the_cache_says_to_run_again(finished, tmp_path, monkeypatch):
    monkeypatch.setenv("ACCLIMATE_CACHE", str(tmp_path))
    with pytest.raises(MissingData, match=r"phase 'fedavg' of 'tuned', seed 0, is not \(or no longer\) in the cache"):
        finished.system("tuned").export(tmp_path / "b")


def test_wrapped_model_of_ones_own_is_exported_and_loaded_into_another(tmp_path):
    model = cnn()
    adapted = ac.wrap(model, "bbse", **ac.calibrate(model, "bbse", labelled(images())))
    adapted(images())
    adapted.export(tmp_path / "b")
    with pytest.raises(ConfigError, match="the bundle holds the tensors of Sequential; bring one"):
        ac.load(tmp_path / "b")
    with pytest.raises(MissingData, match="the tensors are not those of the model"):
        ac.load(tmp_path / "b", model=torch.nn.Linear(2, 3))
    other = cnn()
    torch.nn.init.zeros_(other[0].weight)
    again = ac.load(tmp_path / "b", model=other)
    adapted.reset()
    assert torch.equal(again(images()), adapted(images()))
    assert not other[0].weight.any()
