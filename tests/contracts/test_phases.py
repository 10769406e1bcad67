"""What every phase of the catalog must do, now and later."""

import shutil
import sqlite3

import pytest

import battery
import toys
from acclimate import params, trees
from acclimate.engine.checkpoint import Checkpoint
from acclimate.engine.executor import Serial
from acclimate.engine.known import Known
from acclimate.engine.live import Extending
from acclimate.engine.messages import Part
from acclimate.engine.sealed import sealed, unsealed
from acclimate.engine.trainee import Trainee, Training
from acclimate.experiment.catalog import CALIBRATION, PHASES, TRAINING
from acclimate.trees import Shared

COHORT = 3


def everything(outcome):
    """All bits of a finished phase."""
    saved = outcome.checkpoint
    clients = {id: saved.client(id) for id in battery.population().source}
    return saved.server(outcome.round), clients, list(saved.metrics())


@pytest.mark.parametrize("name", PHASES)
def test_phase_resumes_from_its_checkpoint_and_nothing_else(name, tmp_path):
    whole = battery.run_phase(name, rounds=3)
    paths = tmp_path / "as it was.sqlite", tmp_path / "tampered.sqlite"
    battery.run_phase(name, rounds=2, checkpoint=Checkpoint(paths[0])).checkpoint.close()
    shutil.copy(*paths)
    executor = Serial()
    resumed = battery.run_phase(name, rounds=3, checkpoint=Checkpoint(paths[0]), executor=executor)
    assert everything(resumed) == everything(whole)
    # One task per client in so small a cohort: only the missing round was worked.
    assert executor.worked.total() == COHORT

    db = sqlite3.connect(paths[1])
    blob = db.execute("SELECT state FROM server WHERE round = 2").fetchone()[0]
    state = trees.load(unsealed(blob, "server 2", "it"))
    tampered = sealed(trees.dump(trees.transform(lambda t: t + 1 if t.is_floating_point() else t, state)), "server 2")
    db.execute("UPDATE server SET state = ? WHERE round = 2", (tampered,))
    db.commit()
    db.close()
    other = battery.run_phase(name, rounds=3, checkpoint=Checkpoint(paths[1]))
    assert everything(other)[0] != everything(whole)[0]


@pytest.mark.parametrize("name", PHASES)
def test_phase_gives_the_same_bits_with_two_workers(name, two_workers):
    two_workers.worked.clear()
    one = battery.run_phase(name, rounds=2)
    two = battery.run_phase(name, rounds=2, executor=two_workers)
    assert everything(one) == everything(two)
    assert len(two_workers.worked) == 2


@pytest.mark.parametrize("name", PHASES)
def test_phase_state_survives_save_and_load(name):
    outcome = battery.run_phase(name, rounds=2)
    blobs = [outcome.checkpoint.server(2)]
    blobs += [blob for id in battery.population().source if (blob := outcome.checkpoint.client(id)) is not None]
    for blob in blobs:
        state = trees.load(blob)
        assert trees.dump(state) == blob
        assert trees.equal(trees.load(trees.dump(state)), state)


@pytest.mark.parametrize("name", PHASES)
def test_phase_exports_what_it_declares(name):
    outcome = battery.run_phase(name, rounds=1, cohort="all")
    known = Known([outcome])
    assert set(known.of(0)) == set(outcome.algorithm.exports)
    assert set(known.of(None)) == set(outcome.algorithm.exports) - set(outcome.algorithm.personal)


@pytest.mark.parametrize("name", PHASES)
def test_phase_exports_differ_from_client_to_client_only_where_declared(name):
    outcome = battery.run_phase(name, rounds=1, cohort="all")
    algorithm = outcome.algorithm
    own = [
        algorithm.export(outcome.released(id), None if state is None else state.open(), id)
        for id in battery.population().source
        for state in [outcome.state(id)]
    ]
    for export in algorithm.exports:
        same = all(trees.equal(other[export], own[0][export]) for other in own[1:])
        assert same == (export not in algorithm.personal)


@pytest.mark.parametrize("name", PHASES)
def test_phase_leaves_what_it_is_given_alone(name):
    """Messages serve all clients of a process, and the server's state is what was saved."""
    algorithm, people = battery.quick(PHASES[name].load()()), battery.population()
    known = battery.before(tuple(algorithm.needs))
    training = Training(algorithm, battery.build(), 5, 0, tuple(people.source), known.exports)
    trainee = Trainee(training, people)
    server = algorithm.init(training.task(people.classes, people.shape))
    before = trees.dump(server)
    message = Shared(algorithm.broadcast(server, 0))
    sent = trees.dump(message.read())
    folded = trainee.fold([(part, trainee.do(part)) for part in [Part(0, 1, message, None, known.own(0))]])
    assert trees.dump(message.read()) == sent
    algorithm.server_update(server, folded.replies)
    algorithm.export(algorithm.release(server, 0), folded.states[0].open() if 0 in folded.states else None, 0)
    assert trees.dump(server) == before


@pytest.mark.parametrize("name", PHASES)
def test_phase_is_a_value(name):
    algorithm = PHASES[name].load()()
    assert algorithm == PHASES[name].load()()
    with pytest.raises(AttributeError):
        algorithm.anything = 1


@pytest.mark.parametrize("name", TRAINING)
def test_training_changes_the_model(name):
    start = Known([battery.run_phase(name, rounds=1, cohort="all")]).of(0)["model"]
    later = Known([battery.run_phase(name, rounds=2, cohort="all")]).of(0)["model"]
    assert not trees.equal(start, later)


@pytest.mark.parametrize("name", TRAINING)
def test_training_starts_from_the_model_of_earlier_phases(name):
    build = battery.build()
    made = {key: tensor + 1 for key, tensor in params.of(build(None)).items()}
    algorithm = TRAINING[name].load()()
    one = toys.client(toys.examples(4), Extending(build, (algorithm,)), known={"model": made})
    released = algorithm.release(algorithm.init(one.task), one.id)
    start = algorithm.export(released, algorithm.client_init(one), one.id)["model"]
    assert start.keys() == made.keys()
    assert all(trees.equal(start[key], made[key]) for key in made)


@pytest.mark.parametrize("name", CALIBRATION)
def test_calibration_leaves_the_model_alone(name):
    assert "model" not in CALIBRATION[name].load()().exports


@pytest.mark.parametrize("name", PHASES)
def test_phase_keeps_rounds_with_their_client_states(name, tmp_path):
    short = battery.run_phase(name, rounds=2)
    long = battery.run_phase(name, rounds=3, keep_every=2, checkpoint=Checkpoint(tmp_path / "phase.sqlite"))
    assert long.checkpoint.kept() == [0, 2, 3]
    assert long.checkpoint.server(2) == short.checkpoint.server(2)
    for id in battery.population().source:
        assert long.checkpoint.client(id, 2) == short.checkpoint.client(id)
