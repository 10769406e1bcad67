"""What the batteries run every method on: a tiny population of real digits, and each method with its options."""

from dataclasses import replace
from functools import cache

import numpy as np
import torch

from acclimate.calibration.guard import Guard
from acclimate.contracts import AdapterRecipe
from acclimate.engine.checkpoint import Checkpoint
from acclimate.engine.evaluate import Commit, Test, evaluate
from acclimate.engine.executor import Serial
from acclimate.engine.known import Known
from acclimate.engine.roster import roster
from acclimate.engine.seeds import seed_call
from acclimate.engine.train import train
from acclimate.experiment.catalog import ADAPTERS, AGGREGATORS, CALIBRATION, MODELS, PHASES, TRAINING
from acclimate.models.build import Build
from acclimate.scenarios.population import Held
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
    return replace(SCENARIO.build(seed=3), public=Held(0, np.arange(12)))  # some images that everybody has


def build(model="shallow-cnn"):
    p = population()
    return Build(MODELS[model].load(), p.classes, p.shape, p.mean, p.std)


@cache
def trained(make=None):
    """A model of two rounds: not good, but not what it started as."""
    return Known([run_phase("fedavg", rounds=2, make=make)])


@cache
def knowing(adapter, make=None):
    """What an adapter of the catalog needs, by the phases that export it: one training, then calibrations."""
    wanted, calibrations = ["model", *ADAPTERS[adapter].load().needs], []
    for name in wanted:  # grows by what calibrations need in turn
        for phase in CALIBRATION:
            if name in exports(phase) and phase not in calibrations:
                calibrations.insert(0, phase)
                wanted += PHASES[phase].load()().needs
    training = max(TRAINING, key=lambda phase: len(set(wanted) & set(exports(phase))))  # the first of equals
    known = trained(make) if training == "fedavg" else Known([run_phase(training, rounds=1, cohort="all", make=make)])
    for phase in calibrations:
        outcome = run_phase(phase, rounds=1, cohort="all", make=make, known=known)
        known = Known([*known.outcomes, outcome])
    return known


def exports(phase):
    return PHASES[phase].load()().exports


def knowledge(adapter, make=None, client=0):
    """What an adapter of the catalog is given by name, and the model."""
    known = knowing(adapter, make).of(client)
    return known["model"], {need: known[need] for need in ADAPTERS[adapter].load().needs}


def run_phase(name, *, rounds, cohort=3, make=None, known=None, **more):
    """A phase of the catalog, on its own or, if it needs something, after the phases that export it."""
    algorithm = quick(PHASES[name].load()())
    known = before(tuple(algorithm.needs), make) if known is None else known
    position = len(known.outcomes)
    return run_algorithm(
        algorithm, rounds=rounds, cohort=cohort, seed=5, make=make, position=position, known=known, **more
    )


def quick(algorithm):
    """The same with at most two local steps, where they are counted; what teaches a guard plays little, of Tent."""
    if isinstance(algorithm, Guard):
        return replace(algorithm, adapter=AdapterRecipe(ADAPTERS["tent"].load()), segments=2, images=40)
    local = getattr(algorithm, "local", None)
    return algorithm if local is None or local.steps is None else replace(algorithm, local=replace(local, steps=2))


@cache
def before(needs, make=None):
    """What a phase needs: after FedAvg, or after a training that exports what no other does."""
    if not needs:
        return Known()
    if needs == ("model",):
        return trained(make)
    first = next(name for name in TRAINING if set(needs) <= set(exports(name)))
    return Known([run_phase(first, rounds=1, cohort="all", make=make)])


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
        known=known or knowing(adapter),
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


def assert_blind(recipe, known, aggregator=None):
    """Assert that what an adapter predicts depends on no label: true, permuted or withheld, the logits are the same."""
    people = population()
    changes = (lambda y: y, lambda y: np.random.default_rng(0).permutation(y), lambda y: np.full_like(y, -1))
    seen = []
    for change in changes:
        executor, logits = Listening(), []
        executor.heard = logits
        commits = list(
            run_adapter(recipe, aggregator, known=known, people=with_labels(people, change), executor=executor, seed=5)
        )
        seen.append((logits, [paused.state for commit in commits for paused in commit.members.values()]))
    assert len(seen[0][0]) > 10
    for logits, states in seen[1:]:
        assert all(torch.equal(a, b) for a, b in zip(logits, seen[0][0], strict=True)), "labels change predictions"
        assert states == seen[0][1], "labels change states"


class Listening(Serial):
    """Hears all predictions."""

    heard = ()

    def install(self, work):
        super().install(work)
        score = self._doing._score

        def listening(member, logits, y, values):
            self.heard.append(logits.clone())
            return score(member, logits, y, values)

        self._doing._score = listening


def assert_modest(adapter, x):
    """Assert that an adapter leaves its input as it is and seeds nothing: draws follow from where they happen."""
    for call in (adapter.forward, adapter.adapt, adapter.predict):
        given, after = x.clone(), []
        for address in (1, 2):
            seed_call(address)
            call(given)
            after.append(torch.get_rng_state())
        assert torch.equal(given, x), "changes its input"
        assert not torch.equal(*after), "seeds torch's generator"
