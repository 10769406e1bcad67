"""What is found again, and what is made again."""

import json
import subprocess
from collections import Counter

import pytest

import battery
from acclimate.data.folders import cache_folder
from acclimate.experiment import source, versions
from acclimate.experiment.catalog import ADAPTERS, AGGREGATORS, CALIBRATION, MODELS, PHASES, TRAINING, Entry
from acclimate.experiment.choice import choose
from acclimate.experiment.reader import parse
from acclimate.experiment.run import is_finished, run
from acclimate.experiment.source import covered, engine_digest, source_digest, written
from recorded import defaults, engine


class Told:
    def __init__(self):
        self.titles, self.steps = [], Counter()

    def begin(self, title, total):
        self.titles.append(title)

    def step(self, done, text):
        self.steps[self.titles[-1]] += 1

    def end(self): ...

    def say(self, text): ...


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCLIMATE_CACHE", str(tmp_path / "cache"))


def tiny(*overrides, **more):
    return parse(battery.tiny(**more), overrides)


def phases_trained():
    return sorted((cache_folder() / "phases").glob("*/*.sqlite"))


def test_what_differs_from_the_defaults_is_all_that_a_digest_covers():
    experiment = tiny("phases.0.local.lr=0.05", "phases.0.local.epochs=1", "systems.tent.adapter.lr=0.001")
    (tent,) = experiment.systems
    assert tent.phases[0].differs() == {"rounds": 2, "algorithm": {"name": "fedavg", "local": {"lr": 0.05}}}
    assert tent.adapter.differs == {"name": "tent"}
    assert experiment.differs()["test"] == {"batch_size": 10}
    assert tent.adapter.plain["lr"] == 0.001


@pytest.mark.parametrize(
    ("spelt", "same"),
    [
        ("phases.0.local={lr: 0.1}", True),
        ("phases.0.local={lr: 0.1, momentum: 0.5}", False),
        ("phases.0.cohort=all", True),
        ("phases.0.cohort=3", False),
        ("phases.0.keep_every=1", False),
        ("scenario.availability={probability: 1}", True),
        ("scenario.availability={probability: 0.5}", False),
        ("test.reset=never", True),
        ("test.reset=batch", False),
        ("systems.0.test={batch_size: 10}", True),
        ("systems.0.test={batch_size: all}", False),
        ("systems.0.model=shallow-cnn", True),
        ("systems.0.model=mlp", False),
        ("systems.0.adapter={name: tta-grad, term: null}", True),
        ("systems.0.adapter={name: tta-grad, term: fedprox}", False),
    ],
)
def test_a_default_spelt_out_is_the_same_run_and_anything_else_is_not(spelt, same):
    systems = [{"name": "x", "adapter": "tta-grad"}]
    assert (tiny(spelt, systems=systems).run_name == tiny(systems=systems).run_name) == same


def test_an_option_of_a_mapping_that_anybody_may_fill_is_covered_as_a_whole():
    table = {"0-3": ["clean", "rotation 20 x 2"], "4": ["clean"]}
    more = {"name": "timetable", "table": table}
    less = {"name": "timetable", "table": {"4": ["clean"]}}
    assert tiny(scenario=more).run_name != tiny(scenario=less).run_name


@pytest.fixture
def grown(monkeypatch):
    """After a call, FedAvg and Tent have one more option, with a default, and their files count as they were."""

    def grow():
        for table, name, target in ((PHASES, "fedavg", "Grown"), (ADAPTERS, "tent", "GrownTent")):
            module = table[name].load().__module__
            monkeypatch.setitem(table, name, Entry(f"wrappers:{target}", ""))
            assert "later" in choose(name, "", table)[0].plain
            monkeypatch.setattr(table[name].load(), "__module__", module)

    return grow


def test_an_option_with_a_default_leaves_runs_and_trained_phases_found(tmp_path, own_cache, grown):
    before = tiny()
    run(before, tmp_path)
    trained = phases_trained()
    grown()
    after = tiny()
    assert after.plain() != before.plain()
    assert after.run_name == before.run_name
    assert is_finished(after, tmp_path)
    told, more = Told(), tiny(systems=["em", "tent"])
    run(more, tmp_path, listener=told)
    assert [title for title in told.titles if "testing" in title] == ["seed 0 (1/1): testing em"]
    assert told.steps["seed 0 (1/1): fedavg"] == 0
    assert phases_trained() == trained
    given = tiny("phases.0.later=0.25")
    assert given.run_name != before.run_name


def test_a_changed_default_with_its_revision_makes_everything_anew(monkeypatch):
    before = tiny()
    monkeypatch.setitem(PHASES, "fedavg", Entry("wrappers:Revised", ""))
    after = tiny()
    assert after.plain() == before.plain()
    assert after.systems[0].phases[0].algorithm.differs == {"name": "fedavg", "revision": 1}
    assert after.run_name != before.run_name


def test_a_system_added_to_an_experiment_measures_only_what_is_new_and_leaves_the_other_run(tmp_path, own_cache):
    first, told = tiny(systems=["tent"]), Told()
    run(first, tmp_path)
    more = tiny(systems=["tent", {"name": "alone", "adapter": "tent", "test": {"batch_size": "all"}}])
    run(more, tmp_path, listener=told)
    assert [title for title in told.titles if "testing" in title] == [
        "seed 0 (1/1): testing none for alone",
        "seed 0 (1/1): testing alone",
    ]
    assert told.steps["seed 0 (1/1): fedavg"] == 0
    assert is_finished(first, tmp_path)
    assert is_finished(more, tmp_path)
    assert first.run_name != more.run_name


def test_git_is_asked_once_in_a_run(tmp_path, monkeypatch):
    asked, really = [], subprocess.run

    def counted(words, *args, **more):
        asked.append(words[0])
        return really(words, *args, **more)

    versions.versions.cache_clear()
    monkeypatch.setattr(subprocess, "run", counted)
    run(tiny(systems=["none", "tent", "em", "t3a", "bbse"]), tmp_path)
    assert asked == ["git"]


@pytest.fixture
def edited(monkeypatch):
    """After a call, the code of a module is different."""
    before = source._code

    def edit(module):
        def other(name):
            text, imported = before(name)
            return (f"{text} edited" if name == module else text), imported

        monkeypatch.setattr(source, "_code", other)

    return edit


def digest(table, name):
    return source_digest([table[name].target.partition(":")[0]])


def test_an_edit_in_one_adapter_retrains_nothing(edited):
    before = {name: digest(PHASES, name) for name in PHASES}
    tent, em = digest(ADAPTERS, "tent"), digest(ADAPTERS, "em")
    edited("acclimate.adapters.tent")
    assert {name: digest(PHASES, name) for name in PHASES} == before
    assert (digest(ADAPTERS, "tent") != tent, digest(ADAPTERS, "em") != em) == (True, False)


@pytest.mark.parametrize("name", MODELS)
def test_an_edit_in_one_model_concerns_no_model_of_another_file(name):
    own = MODELS[name].target.partition(":")[0]
    others = {entry.target.partition(":")[0] for entry in MODELS.values()} - {own}
    built_on = {"acclimate.models.resnext", "acclimate.models.wide_resnet"}  # of blocks of resnet.py
    assert covered([own]) & others <= ({"acclimate.models.resnet"} if own in built_on else set())


def test_what_a_method_imports_from_us_is_covered_and_nothing_else_of_its_room():
    found = covered(["acclimate.training.fedprox"])
    assert {"acclimate.training.fedavg", "acclimate.terms", "acclimate.models.head", "acclimate.sgd"} <= found
    assert not found & {"acclimate.training.scaffold", "acclimate.contracts", "acclimate.engine.train", "acclimate"}


def test_what_the_engine_takes_from_other_rooms_is_covered_always():
    assert {"acclimate.params", "acclimate.models.head"} <= covered([])


@pytest.mark.parametrize("table", [TRAINING, CALIBRATION, ADAPTERS, AGGREGATORS, MODELS], ids=str)
def test_no_method_looks_into_experiments_or_reports(table):
    rooms = {m.split(".")[1] for name in table for m in covered([table[name].target.partition(":")[0]])}
    assert not rooms & {"experiment", "report", "cli", "store", "engine"}


def test_comments_docstrings_and_layout_are_no_other_code():
    plain = "def f(x, *, y=1):\n    return [x,\n      y]\n"
    told = '"""A file."""\n# why\ndef f(x, *, y=1):\n    """What."""\n    return [x, y]  # both\n'
    assert written(plain) == written(told)
    assert written(plain) != written(plain.replace("y=1", "y=2"))
    assert written("f(x)") != written("f('x')")
    assert written("x = None") != written("x = 'None'")


def test_an_edit_in_the_engine_needs_a_word():
    recorded = json.loads(engine.FILE.read_text(encoding="utf-8"))
    assert engine.current() == recorded, (
        "the engine's code changed. If the edit changes any bit of what is trained or tested, raise REVISION in "
        "src/acclimate/engine/revision.py, and everything is made again. Then, or if it changes none, run "
        "python tests/recorded/engine.py"
    )


@pytest.mark.parametrize("module", ["engine.train", "contracts", "trees", "examples", "scenarios.population"])
def test_the_engine_is_watched(edited, module):
    before, method = engine_digest(), source_digest(["acclimate.training.fedavg"])
    edited(f"acclimate.{module}")
    assert engine_digest() != before
    assert source_digest(["acclimate.training.fedavg"]) == method


def test_a_higher_revision_of_the_engine_makes_everything_anew(monkeypatch):
    before = source_digest(["acclimate.training.fedavg"])
    monkeypatch.setattr(source, "REVISION", source.REVISION + 1)
    assert source_digest(["acclimate.training.fedavg"]) != before


def test_no_default_changes_without_a_higher_revision_and_all_are_recorded():
    recorded, found = json.loads(defaults.FILE.read_text(encoding="utf-8")), defaults.current()
    assert defaults.changed(recorded, found) == []
    assert defaults.unrecorded(recorded, found) == []


def test_recorded_defaults_tell_changes_from_growth():
    def table(revision=0, **options):
        return {"adapters": {"tent": {"revision": revision, "defaults": options}}}

    before = table(lr=1)
    assert defaults.changed(before, table(lr=1, later=2)) == []
    assert defaults.unrecorded(before, table(lr=1, later=2)) == [
        "adapters tent: not as recorded; run python tests/recorded/defaults.py"
    ]
    (problem,) = defaults.changed(before, table(lr=2))
    assert problem.startswith(
        "adapters tent: the default of 'lr' was 1 and is 2; raise `revision` of its class above 0"
    )
    assert "is 'gone'" in defaults.changed(before, table())[0]
    assert defaults.changed(before, table(revision=1, lr=2)) == []
    assert defaults.changed(table(revision=1, lr=1), before) != []
    assert defaults.unrecorded({}, before) != []
