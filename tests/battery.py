"""What the batteries run every method on: a tiny population of real digits, and each method with its options."""

from dataclasses import replace
from functools import cache

from acclimate.contracts import AdapterRecipe
from acclimate.engine.checkpoint import Checkpoint
from acclimate.engine.evaluate import Commit, Test, evaluate
from acclimate.engine.executor import Serial
from acclimate.engine.known import Known
from acclimate.engine.roster import roster
from acclimate.engine.train import train
from acclimate.experiment.catalog import ADAPTERS, AGGREGATORS, CALIBRATION, MODELS, PHASES, ROOMS, TRAINING
from acclimate.models.build import Build
from acclimate.scenarios.twofold import Twofold

SCENARIO = Twofold(size=18, source_clients=4, per_source=30, test_clients=3, major=6, minor=1, new=False)
TEST = Test(batch_size=7)  # 20 images a stream: three slots, the last one shorter


def tiny(**more):
    """A whole experiment as plain data, small enough to run in a blink."""
    people = {"source_clients": 3, "per_source": 30, "test_clients": 3, "major": 6, "minor": 1}
    return {
        "name": "tiny",
        "scenario": {"name": "twofold", "size": 18, **people},
        "model": "shallow-cnn",
        "phases": [{"name": "fedavg", "rounds": 2}],
        "systems": ["tent"],
        "test": {"batch_size": 10},
        "seeds": [0],
        **more,
    }


@cache
def population():
    return SCENARIO.build(seed=3)


def build(model="shallow-cnn"):
    p = population()
    return Build(MODELS[model].load(), p.classes, p.shape, p.mean, p.std)


@cache
def trained(make=None):
    """A model of two rounds: not good, but not what it started as."""
    return Known([run_phase("fedavg", rounds=2, make=make)])


def calibrated(adapter, make=None):
    """Everything an adapter needs: what the training and the calibration in files of its name give."""
    return made_by(ADAPTERS[adapter].file, ("training", "calibration"), make)


def prepared(calibration, make=None):
    """What a calibration needs: a model, and what the training in a file of its name gives besides."""
    return made_by(CALIBRATION[calibration].file, ("training",), make)


@cache
def made_by(file, rooms, make):
    names = [name for room in rooms for name, entry in ROOMS[room].items() if entry.file == file]
    return Known([*trained(make).outcomes, *(run_phase(name, rounds=1, cohort="all", make=make) for name in names)])


def run_phase(name, *, rounds, cohort=3, make=None, **more):
    """A phase of the catalog, on its own or, if it is a calibration, after a training."""
    trains = name in TRAINING
    return run_algorithm(
        PHASES[name].load()(),
        rounds=rounds,
        cohort=cohort,
        seed=5,
        make=make,
        position=0 if trains else 1,
        known=Known() if trains else prepared(name, make),
        **more,
    )


def run_algorithm(algorithm, *, rounds=1, people=None, make=None, executor=None, checkpoint=None, **more):
    """Any phase, on the tiny population unless told otherwise."""
    people, executor = people or population(), executor or Serial()
    executor.meet(people)
    return train(
        algorithm,
        roster(people),
        make or build(),
        rounds=rounds,
        executor=executor,
        checkpoint=checkpoint or Checkpoint(),
        **more,
    )


def run_test(adapter, aggregator=None, *, known=None, seconds=0, **more):
    """All commits of a test of the catalog's; without `seconds`, one slot of one client (or, with an aggregator, one
    exchange) each.
    """
    named = {"test", "people", "resume", "executor", "progress"}
    options = {key: value for key, value in more.items() if key not in named}
    return run_adapter(
        AdapterRecipe(ADAPTERS[adapter].load(), options),
        AGGREGATORS[aggregator].load()() if aggregator else None,
        known=known or calibrated(adapter),
        seconds=seconds,
        seed=5,
        **{key: value for key, value in more.items() if key in named},
    )


def run_adapter(
    recipe, aggregator=None, *, known=None, people=None, test=TEST, executor=None, seconds=0, make=None, **more
):
    """All commits of a test of any adapter."""
    people, executor = people or population(), executor or Serial()
    executor.meet(people)
    return evaluate(
        recipe,
        roster(people, test.batch_size),
        make or build(),
        known or trained(),
        executor=executor,
        aggregator=aggregator,
        test=test,
        commit_seconds=seconds,
        **more,
    )


def scores(commits):
    """Everything measured but times, in a fixed order."""
    rows = [
        (s.client, s.stream, s.slot, s.shift, name, value)
        for commit in commits
        for s in commit.scores
        for name, value in s.values.items()
        if name != "seconds"
    ]
    return sorted(rows)


def after(commits):
    """Where everybody stands after some commits."""
    place = Commit()
    for commit in commits:
        place.members.update(commit.members)
        place.servers.update(commit.servers)
    return place


def with_labels(people, change):
    """The same population with other labels."""
    return replace(people, pools=tuple((images, change(labels)) for images, labels in people.pools))
