"""What the batteries run every method on: a tiny population of real digits, and each method with its options."""

from dataclasses import replace
from functools import cache, partial

from acclimate.engine.checkpoint import Checkpoint
from acclimate.engine.evaluate import Commit, Test, evaluate
from acclimate.engine.train import Known, train
from acclimate.experiment.catalog import ADAPTERS, AGGREGATORS, CALIBRATION, MODELS, PHASES, TRAINING
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


@cache
def calibrated(make=None):
    """Everything any adapter needs."""
    outcomes = [run_phase(name, rounds=1, make=make) for name in CALIBRATION]
    return Known([*trained(make).outcomes, *outcomes])


def run_phase(name, *, rounds, checkpoint=None, executor=None, cohort=3, keep_every=None, make=None):
    trains = name in TRAINING
    return train(
        PHASES[name].load()(),
        population(),
        make or build(),
        rounds=rounds,
        cohort=cohort,
        seed=5,
        position=0 if trains else 1,
        known=Known() if trains else trained(make),
        checkpoint=checkpoint or Checkpoint(),
        executor=executor,
        keep_every=keep_every,
    )


def run_test(
    adapter, aggregator=None, *, people=None, test=TEST, resume=None, executor=None, known=None, seconds=0, **options
):
    """All commits of a test; without `seconds`, one slot of one client (or, with an aggregator, one slot) each."""
    target = ADAPTERS[adapter].load()
    return evaluate(
        partial(target, **options),
        people or population(),
        build(),
        known or calibrated(),
        needs=target.needs,
        aggregator=AGGREGATORS[aggregator].load()() if aggregator else None,
        test=test,
        seed=5,
        resume=resume,
        executor=executor,
        commit_seconds=seconds,
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
