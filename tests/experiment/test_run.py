"""Whole experiments, tiny: caching, tuning, selecting, baselines, locks."""

import json
import re
import sqlite3
from collections import Counter
from contextlib import closing

import pytest

import battery
from acclimate import trees
from acclimate.data.folders import cache_folder
from acclimate.engine.checkpoint import Checkpoint
from acclimate.errors import ConfigError, MissingKnowledge, NothingSelected, RunLocked
from acclimate.experiment import source
from acclimate.experiment.baselines import with_baselines
from acclimate.experiment.cache import trained as cached
from acclimate.experiment.lock import lock
from acclimate.experiment.reader import parse
from acclimate.experiment.run import STORE, is_finished, run
from acclimate.report.table import table
from acclimate.store.database import Store, Unit
from acclimate.store.records import Entry


def tiny(*overrides, **more):
    return parse(battery.tiny(**more), overrides)


class Told:
    def __init__(self):
        self.titles, self.said, self.steps = [], [], Counter()

    def begin(self, title, total):
        self.titles.append(title)

    def step(self, done, text):
        self.steps[self.titles[-1]] += 1

    def end(self): ...

    def say(self, text):
        self.said.append(text)


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCLIMATE_CACHE", str(tmp_path / "cache"))


def table_of(experiment, runs):
    store = Store(runs / STORE)
    found = table(store.find(experiment.run_name))
    store.close()
    return found


def test_run_measures_the_baseline_by_itself(tmp_path):
    experiment = tiny()
    run(experiment, tmp_path)
    lines = {line.system: line for line in table_of(experiment, tmp_path).lines}
    assert list(lines) == ["none", "tent"]
    assert lines["none"].cells["label"].harmed == [0.0]


def test_baselines_have_the_same_training_phases():
    experiment = tiny(
        systems=[
            "none",
            "tent",
            {"name": "bbse"},
            {"name": "own", "phases": [{"name": "fedprox", "rounds": 1}], "adapter": "em"},
        ]
    )
    systems, baseline = with_baselines(experiment.systems)
    assert baseline == {
        "none": "none",
        "tent": "none",
        "bbse": "none",
        "own": "none for own",
        "none for own": "none for own",
    }
    assert [s.name for s in systems] == ["none", "tent", "bbse", "none for own", "own"]


def test_second_run_trains_nothing_and_measures_nothing(tmp_path, own_cache):
    experiment, first, second = tiny(), Told(), Told()
    run(experiment, tmp_path, listener=first)
    assert is_finished(experiment, tmp_path)
    run(experiment, tmp_path, listener=second)
    assert first.titles[0] == "seed 0 (1/1): fedavg"
    assert second.titles == []


def test_other_adapters_share_the_trained_model(tmp_path, own_cache):
    run(tiny(), tmp_path)
    told = Told()
    other = tiny(systems=["em", "t3a"])
    run(other, tmp_path, listener=told)
    assert told.steps["seed 0 (1/1): fedavg"] == 0
    assert told.steps["seed 0 (1/1): testing em"] > 0
    assert len(list((cache_folder() / "phases").iterdir())) == 1


def test_training_metrics_are_in_the_store_also_when_the_model_came_from_the_cache(tmp_path, own_cache):
    run(tiny(), tmp_path)
    other = tiny(systems=["em"])
    run(other, tmp_path)
    db = sqlite3.connect(tmp_path / STORE)
    counts = db.execute("SELECT run, count(*) FROM row WHERE metric = 'loss' GROUP BY run").fetchall()
    db.close()
    assert [count for _, count in counts] == [6, 6]  # two rounds of three clients


LONGER = [{"name": "scaffold", "rounds": 5, "keep_every": 2}]
SHORTER = [{**LONGER[0], "rounds": 3}]


def test_more_rounds_go_on_where_fewer_ended_and_end_with_the_same_bits(tmp_path, own_cache, monkeypatch):
    told = Told()
    run(tiny(phases=SHORTER), tmp_path)
    run(tiny(phases=LONGER), tmp_path, listener=told)
    assert told.steps["seed 0 (1/1): scaffold"] == 2  # the fourth and the fifth round
    monkeypatch.setenv("ACCLIMATE_CACHE", str(tmp_path / "other"))
    run(tiny(phases=LONGER), tmp_path / "anew")
    assert measured(tiny(phases=LONGER), tmp_path) == measured(tiny(phases=LONGER), tmp_path / "anew")
    files = [next(file for file in (tmp_path / "cache").rglob("*.sqlite") if rounds_of(file) == 5)]
    files += (tmp_path / "other").rglob("*.sqlite")
    assert len({contents(file) for file in files}) == 1


def test_a_damaged_shorter_training_is_none(tmp_path, own_cache):
    run(tiny(phases=SHORTER), tmp_path)
    (file,) = (tmp_path / "cache").rglob("*.sqlite")
    before = file.read_bytes()[:200]
    file.write_bytes(before)
    told = Told()
    run(tiny(phases=LONGER), tmp_path, listener=told)
    assert told.steps["seed 0 (1/1): scaffold"] == 5
    assert file.read_bytes() == before  # it is not ours to mend


def rounds_of(file):
    with closing(Checkpoint(file)) as checkpoint:
        return checkpoint.last()


def contents(file):
    with closing(sqlite3.connect(file)) as db:
        return repr([db.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3").fetchall() for table in TABLES])


TABLES = ("server", "client", "metric")


def measured(experiment, runs):
    """Every row of a run's tests, times aside."""
    db = sqlite3.connect(runs / STORE)
    rows = db.execute(
        "SELECT system, seed, phase, client, stream, slot, shift, metric, value FROM row JOIN run ON run.id = row.run "
        "WHERE run.name = ? AND slot >= -1 AND metric != 'seconds' ORDER BY 1, 2, 3, 4, 5, 6, 8",
        (experiment.run_name,),
    ).fetchall()
    db.close()
    return rows


def test_more_systems_and_seeds_measure_only_what_is_new(tmp_path):
    run(tiny(systems=["tent", "fedavg+tta-grad"]), tmp_path / "a")
    more, told = tiny(systems=["em", "tent", "fedavg+tta-grad"], seeds=[0, 1]), Told()
    run(more, tmp_path / "a", listener=told)
    tested = [title for title in told.titles if "testing" in title]
    assert tested == [
        "seed 0 (1/2): testing em",
        *(f"seed 1 (2/2): testing {name}" for name in ("none", "em", "tent", "fedavg+tta-grad")),
    ]
    run(more, tmp_path / "b")
    assert measured(more, tmp_path / "a") == measured(more, tmp_path / "b")
    remarks = {line.system: line.remarks for line in table_of(more, tmp_path / "a").lines}
    assert remarks["em"] == []
    assert remarks["tent"] == [f"seed 0: as measured by run {tiny(systems=['tent', 'fedavg+tta-grad']).run_name}"]
    assert told.said[0].startswith("seed 0 (1/2): none as measured by tiny-")


@pytest.mark.parametrize(
    "change",
    [
        "test.batch_size=11",
        "scenario.minor=2",
        "scenario.availability.probability=0.5",
        "phases.0.rounds=1",
        "model=resnet8",
        "systems.0.adapter.lr=0.5",
        "systems.0.aggregator=local",
        "seeds=[1]",
    ],
)
def test_a_test_that_differs_in_anything_is_measured(tmp_path, change):
    system = {"name": "tent", "aggregator": "fedavg"}
    run(tiny(systems=[system]), tmp_path)
    told = Told()
    run(tiny(change, systems=[system]), tmp_path, listener=told)
    assert any("testing tent" in title for title in told.titles)


def test_a_test_is_measured_again_by_other_code(tmp_path, monkeypatch):
    run(tiny(), tmp_path)
    monkeypatch.setattr("acclimate.experiment.session.source_digest", lambda modules: "other")
    told = Told()
    run(tiny(seeds=[0, 1]), tmp_path, listener=told)
    assert "seed 0 (1/2): testing tent" in told.titles


class Stopped(Exception): ...


def test_a_test_begun_by_other_code_begins_again(tmp_path, monkeypatch):
    class Stops(Told):
        def step(self, done, text):
            super().step(done, text)
            if self.titles[-1].endswith("testing tent") and self.steps[self.titles[-1]] == 2:
                raise Stopped

    monkeypatch.setenv("ACCLIMATE_COMMIT_SECONDS", "0")
    experiment = tiny(systems=["tent"], test={"batch_size": 2})
    with pytest.raises(Stopped):
        run(experiment, tmp_path, listener=Stops())
    store = Store(tmp_path / STORE)
    assert store.resume(Unit(1, "tent", 0)).members  # it was in the middle
    store.close()
    monkeypatch.setattr("acclimate.experiment.session.source_digest", lambda modules: "other")
    standing, resume = [], Store.resume

    def watched(self, unit):
        found = resume(self, unit)
        standing.append((unit.system, len(found.members)))
        return found

    monkeypatch.setattr(Store, "resume", watched)
    run(experiment, tmp_path)
    assert standing == [("tent", 0)]


def test_code_that_is_edited_while_it_runs_is_filed_as_what_ran(tmp_path):
    """The digest is that of the sources as they were when the run began."""
    experiment = tiny(systems=["tent"])
    source._code.cache_clear()

    class Edits(Told):
        def begin(self, title, total):
            super().begin(title, total)
            if "testing" in title:  # hours later
                read.append(source._code.cache_info().misses)

    read = []
    run(experiment, tmp_path, listener=Edits())
    assert read[0] > 0
    assert source._code.cache_info().misses == read[0]  # nothing is read while it is at work


def test_run_twice_at_once_names_the_holder(tmp_path):
    experiment = tiny()
    with lock(tmp_path / experiment.run_name / "lock"), pytest.raises(RunLocked, match=r"in use by process [0-9]+"):
        run(experiment, tmp_path)


def test_tune_chooses_on_source_validation_data_and_says_so(tmp_path):
    experiment = tiny(systems=[{"name": "tent", "tune": {"lr": [1e-9, 10.0]}}])
    run(experiment, tmp_path)
    store = Store(tmp_path / STORE)
    note = store.find(experiment.run_name).noted("tuned")["tent", 0]
    clients = {c for (c,) in store._db.execute("SELECT DISTINCT client FROM row WHERE phase LIKE 'tune%'")}
    store.close()
    assert clients == {0, 1, 2}  # source clients; test clients are 3, 4, 5
    assert set(note["validation"]) == {"lr=1e-09", "lr=10.0"}
    assert note["chosen"]["lr"] == float(max(note["validation"], key=note["validation"].get).removeprefix("lr="))
    remarks = next(line.remarks for line in table_of(experiment, tmp_path).lines if line.system == "tent")
    assert any("tuned on source validation data: lr=" in remark for remark in remarks)


def test_select_shows_selected_and_last(tmp_path):
    phases = [{"name": "fedavg", "rounds": 3, "keep_every": 1}]
    experiment = tiny(phases=phases, systems=[{"name": "em", "select": "best-validation"}])
    run(experiment, tmp_path)
    found = table_of(experiment, tmp_path)
    assert [(line.system, line.selected) for line in found.lines] == [("none", False), ("em", False), ("em", True)]
    store = Store(tmp_path / STORE)
    note = store.find(experiment.run_name).noted("selected")["em", 0]
    store.close()
    assert set(note["validation"]) == {"1", "2", "3"}
    best = max(note["validation"].values())
    assert note["validation"][str(note["round"])] == best


def test_select_of_the_last_round_equals_last(tmp_path):
    phases = [{"name": "fedavg", "rounds": 2, "keep_every": 2}]
    experiment = tiny(phases=phases, systems=[{"name": "em", "select": "best-validation"}])
    run(experiment, tmp_path)
    cells = {line.title: line.cells for line in table_of(experiment, tmp_path).lines}
    assert cells["em"] == cells["em (best validation)"]


def test_a_selected_round_is_compared_with_itself_unadapted(tmp_path):
    phases = [{"name": "fedavg", "rounds": 4, "keep_every": 1, "local": {"lr": 0.3}}]  # each round another model
    systems = [{"name": "none", "select": "best-validation"}, {"name": "em", "select": "best-validation"}]
    experiment = tiny(phases=phases, systems=systems)
    run(experiment, tmp_path)
    store = Store(tmp_path / STORE)
    stored = store.find(experiment.run_name)
    cells = {line.title: line.cells["label"] for line in table_of(experiment, tmp_path).lines}
    assert cells["none (best validation)"].harmed == [0.0]
    chosen = Entry("em", selected=True)
    assert stored.baseline(chosen) == Entry("em", True, adapted=False)
    with_, without = (stored.client_accuracies(one, "label")[0] for one in (chosen, stored.baseline(chosen)))
    assert without != stored.client_accuracies(stored.baseline(Entry("em")), "label")[0]
    assert cells[chosen.title].harmed == [sum(with_[c] < without[c] for c in with_) / len(with_)]
    assert [entry.title for entry in stored.entries].count(chosen.title) == 1  # the comparison has no line
    store.close()


def test_tune_without_validation_data_is_an_error(tmp_path):
    experiment = tiny("scenario.validation=0", systems=[{"name": "tent", "tune": True}])
    with pytest.raises(NothingSelected, match="validation data, and this scenario has none"):
        run(experiment, tmp_path)


def test_personal_models_on_new_clients_are_an_error_before_the_first_batch(tmp_path):
    experiment = tiny(phases=[{"name": "fedper", "rounds": 1}])
    with pytest.raises(MissingKnowledge, match="client 3 has no 'model'"):
        run(experiment, tmp_path)
    db = sqlite3.connect(tmp_path / STORE)
    assert db.execute("SELECT count(*) FROM row WHERE phase = 'test'").fetchone() == (0,)
    db.close()


def test_personal_models_and_calibration_work_on_the_clients_that_trained(tmp_path):
    experiment = tiny("scenario.new=false", phases=[{"name": "fedbn", "rounds": 1}], systems=["bbse", "fedavg+em"])
    run(experiment, tmp_path)
    assert len(table_of(experiment, tmp_path).lines) == 3


def test_test_scenario_may_differ_from_the_one_trained_on(tmp_path):
    other = {**tiny().scenario.plain, "noise": 0.0}
    same, elsewhere = tiny(), tiny(test={"batch_size": 10, "scenario": other})
    for experiment in (same, elsewhere):
        run(experiment, tmp_path)
    db = sqlite3.connect(tmp_path / STORE)
    shifts = [
        {
            s
            for (s,) in db.execute(
                "SELECT DISTINCT shift FROM row JOIN run ON run = id WHERE name = ? AND slot >= 0", (n,)
            )
        }
        for n in (same.run_name, elsewhere.run_name)
    ]
    db.close()
    assert "noise 0.8" in shifts[0]
    assert "noise 0" in shifts[1]


OTHERS = {"name": "fedavg", "rounds": 2, "local": {"lr": 0.05}}


def elsewhere(system):
    """The tiny experiment with a system whose rates are learnt where there is no noise; and one that lives there."""
    there = {**tiny().scenario.plain, "noise": 0.0}
    mixed = {
        "name": system,
        "phases": [{**OTHERS, "scenario": there}, {"name": "atp", "rounds": 2, "scenario": there}],
        "adapter": "atp",
    }
    lives = {"name": "atp", "phases": [{"name": "atp", "rounds": 2}], "adapter": "atp"}
    return tiny(phases=[OTHERS], systems=[mixed, lives]), tiny("scenario.noise=0.0", phases=[OTHERS], systems=[lives])


def test_a_phase_may_have_a_scenario_of_its_own(tmp_path, own_cache):
    """Rates come from there, the model from here, and nothing is trained twice."""
    here, there = elsewhere("mixed")
    run(here, tmp_path)
    trained = sorted((cache_folder() / "phases").glob("*/*.sqlite"))
    run(there, tmp_path)
    assert len(trained) == 4 and sorted((cache_folder() / "phases").glob("*/*.sqlite")) == trained
    store = Store(tmp_path / STORE)
    runs = [store.find(experiment.run_name) for experiment in (here, there)]
    rates = [run.rates() for run in runs]
    assert rates[0]["mixed"] == rates[1]["atp"] != rates[0]["atp"]
    store.close()
    lines = {line.system: line for line in table_of(here, tmp_path).lines}
    assert list(lines) == ["none", "mixed", "atp"]  # whom both are compared with
    assert any("phase atp in scenario twofold" in remark for remark in lines["mixed"].remarks)


def test_a_system_with_phases_of_another_scenario_is_exported_whole(tmp_path, own_cache):
    here, there = elsewhere("mixed")
    (mixed, lives), (abroad,) = here.systems, there.systems
    run(here, tmp_path), run(there, tmp_path)
    population, other = (experiment.scenario.made.build(0) for experiment in (here, there))
    with cached(mixed, population, 0) as a, cached(lives, population, 0) as b, cached(abroad, other, 0) as c:
        assert trees.equal(a.of(None)["model"], b.of(None)["model"])
        assert trees.equal(a.of(None)["rates"], c.of(None)["rates"])
        assert not trees.equal(b.of(None)["model"], c.of(None)["model"])


@pytest.mark.parametrize(
    ("phases", "problem"),
    [
        (
            [{"name": "atp", "rounds": 1, "scenario": {"name": "twofold"}}],
            "exported by no phase of its scenario before",
        ),
        ([{"name": "atp", "rounds": 1, "scenario": {"name": "twofolt"}}], "phases.0.scenario.name: unknown 'twofolt'"),
        ([{"name": "atp", "rounds": 1, "scenario": {"noise": -1}}], "phases.0.scenario: expected a name"),
        ([{"name": "fedbn", "rounds": 1, "scenario": "twofold"}], "only what everybody may know can be brought along"),
        ([{"name": "fedsr", "rounds": 1, "scenario": "twofold"}], "only what everybody may know can be brought along"),
    ],
)
def test_what_is_wrong_with_the_scenario_of_a_phase_is_told(phases, problem):
    with pytest.raises(ConfigError, match=re.escape(problem)):
        tiny(systems=[{"name": "mixed", "phases": phases, "adapter": "none"}])


def test_the_model_comes_from_the_experiments_own_scenario():
    with pytest.raises(ConfigError, match="adapter 'none' needs 'model', exported by no phase"):
        tiny(phases=[{"name": "fedavg", "rounds": 1, "scenario": "twofold"}], systems=["none"])


def test_the_scenario_of_a_phase_has_images_like_the_experiments(tmp_path):
    small = {**tiny().scenario.plain, "size": 12}
    phases = [{**OTHERS, "scenario": small}, {"name": "atp", "rounds": 1, "scenario": small}]
    experiment = tiny(systems=[{"name": "mixed", "phases": phases, "adapter": "atp"}])
    with pytest.raises(ConfigError, match=r"the scenario of a phase: expected images as the experiment has them"):
        run(experiment, tmp_path)


def test_reuse_accepts_what_older_code_trained_and_says_so(tmp_path, own_cache, monkeypatch):
    run(tiny(systems=["bbse"]), tmp_path)
    monkeypatch.setattr("acclimate.experiment.cache.source_digest", lambda modules: "0" * 16)  # as if code had changed
    told, experiment = Told(), tiny(systems=["bbse"], test={"batch_size": 5})
    run(experiment, tmp_path, reuse=True, listener=told)
    (line,) = [line for line in table_of(experiment, tmp_path).lines if line.system == "bbse"]
    (remark,) = [remark for remark in line.remarks if "other code" in remark]
    assert "0:fedavg" in remark and "1:bbse" in remark
    trained = len(list((cache_folder() / "phases").glob("*/*.sqlite")))
    run(tiny(systems=["t3a"]), tmp_path, reuse=False)
    assert (trained, len(list((cache_folder() / "phases").glob("*/*.sqlite")))) == (2, 3)


def test_run_folder_has_the_resolved_experiment(tmp_path):
    experiment = tiny()
    run(experiment, tmp_path)
    import yaml

    saved = yaml.safe_load((tmp_path / experiment.run_name / "experiment.yaml").read_text())
    assert json.dumps(saved, sort_keys=True) == json.dumps(experiment.plain(), sort_keys=True)


def test_small_knowledge_and_the_blocks_of_the_model_are_noted_for_reports(tmp_path):
    system = {"name": "atp", "phases": [{"name": "atp", "rounds": 1}], "adapter": "atp"}
    id = run(parse(battery.tiny(systems=[system])), tmp_path)
    store = Store(tmp_path / STORE)
    rates, blocks = store.notes(id, "knowledge rates")["atp", 0], store.notes(id, "blocks")["", -1]
    store.close()
    assert len(rates) == 23  # a rate per module of shallow-cnn
    assert any(rates.values())
    assert list(blocks) == ["conv1", "conv2", "conv3", "linear4", "linear5"]


def test_phase_with_a_seed_of_its_own_is_trained_once_for_all_seeds(tmp_path, own_cache):
    """Where the source clients are the same for all seeds, so is the model; what follows it is not."""
    scenario = {**battery.tiny()["scenario"], "partition_seed": 7}
    atp = {"name": "atp", "phases": [{"name": "atp", "rounds": 1}], "adapter": "atp"}
    phases = [{"name": "fedavg", "rounds": 2, "seed": 4}]
    told, experiment = Told(), tiny(scenario=scenario, phases=phases, systems=[atp], seeds=[0, 1])
    run(experiment, tmp_path, listener=told)
    assert told.steps["seed 0 (1/2): fedavg"] == 2
    assert told.steps["seed 1 (2/2): fedavg"] == 0
    assert told.steps["seed 1 (2/2): atp"] == 1
    assert len(list((cache_folder() / "phases").glob("*/*.sqlite"))) == 3
    free = tiny(scenario=scenario, seeds=[4])
    run(free, tmp_path)
    fixed = tiny(scenario=scenario, phases=phases, seeds=[4])
    run(fixed, tmp_path)
    cells = [table_of(one, tmp_path).lines[0].cells for one in (free, fixed)]
    assert cells[0] == cells[1]


def test_missed_exchanges_are_told(tmp_path):
    experiment = tiny("scenario.availability.periods=[2]", systems=["fedavg+tent"], test={"batch_size": 5})
    run(experiment, tmp_path)
    lines = {line.system: line for line in table_of(experiment, tmp_path).lines}
    assert lines["fedavg+tent"].remarks == ["clients missed 50 % of the exchanges"]
    assert lines["none"].remarks == []


def test_missed_exchanges_are_counted_among_those_that_there_were(tmp_path):
    experiment = tiny(
        "scenario.availability.probability=0", systems=["fedavg+tent"], test={"batch_size": 5, "sync_every": 2}
    )
    run(experiment, tmp_path)
    lines = {line.system: line for line in table_of(experiment, tmp_path).lines}
    assert lines["fedavg+tent"].remarks == ["clients missed 100 % of the exchanges"]


def test_convergence_tests_every_kept_round_on_test_data(tmp_path, own_cache):
    """Before the first round rates are zero, which is no adaptation; the last one is the test itself."""
    atp = {"name": "atp", "phases": [{"name": "atp", "rounds": 4, "keep_every": 2}], "adapter": "atp"}
    phases = [{"name": "fedavg", "rounds": 2, "keep_every": 2}]
    experiment = tiny(phases=phases, systems=["none", atp], test={"batch_size": 10, "convergence": True})
    run(experiment, tmp_path)
    store = Store(tmp_path / STORE)
    found = store.find(experiment.run_name)
    reached = {(one.stream, one.round): one for one in found.convergence() if one.system == "atp"}
    assert sorted(reached) == [(stream, round) for stream in ("feature", "label") for round in (0, 2, 4)]
    scores = {(one.system, one.stream): one.accuracy for one in found.scores()}
    for stream in ("feature", "label"):
        assert reached[stream, 0].accuracy == scores["none", stream]
        assert reached[stream, 4].accuracy == scores["atp", stream]
        assert reached[stream, 0].loss != reached[stream, 4].loss > 0
    assert found.last_phase("atp", 0) in {one.phase for one in found.learning()}
    store.close()


def test_convergence_needs_rounds_that_were_kept():
    with pytest.raises(ConfigError, match=r"systems.0: test.convergence has no rounds to test; give the last phase a"):
        tiny(test={"batch_size": 10, "convergence": True})
