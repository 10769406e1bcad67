"""A test of clients with a model each beside the same test with one model for all.

The models are the same to the bit (fine-tuned at a rate too small to move anything), so both sides predict the same:
what differs is what it costs that everybody's model has to be brought in.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

import torch

from acclimate import params
from acclimate.adapters.bn_adapt import BNAdapt
from acclimate.adapters.none import NoAdaptation
from acclimate.adapters.tent import Tent
from acclimate.contracts import Adapter, AdapterRecipe
from acclimate.engine.evaluate import Test, evaluate
from acclimate.engine.executor import Serial
from acclimate.engine.known import Known
from acclimate.engine.roster import roster
from acclimate.engine.train import train
from acclimate.models.build import Build
from acclimate.models.resnet import resnet8
from acclimate.scenarios.population import Population
from acclimate.sgd import LocalSGD
from acclimate.training.finetune import FineTune
from benchmarks.exchange import BATCH, population, told
from benchmarks.measure import Line, interleave, ratio

ADAPTERS: dict[str, type[Adapter]] = {"no adaptation": NoAdaptation, "BN-Adapt": BNAdapt, "Tent": Tent}
STILL = LocalSGD(lr=1e-30, batch_size=BATCH)


def run(repeats: int = 7) -> list[Line]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    people = population()
    held = {stream.client: stream.segments[0][1] for stream in people.streams}
    people = replace(people, source={client: (rows, rows) for client, rows in held.items()})
    build, executor = Build(resnet8, people.classes, people.shape, people.mean, people.std), Serial(people)
    shared = told(params.of(build().eval()))
    # The head alone: training the rest would move batch statistics.
    alone = train(FineTune(STILL, "head"), roster(people), build, executor=executor, rounds=1, position=1, known=shared)
    personal, lines = Known([*shared.outcomes, alone]), []
    for name, adapter in ADAPTERS.items():
        found: dict[str, float] = {}
        sides = {
            side: partial(_test, side, AdapterRecipe(adapter), people, build, known, found)
            for side, known in (("personal", personal), ("shared", shared))
        }
        for side in sides.values():
            side()
        seconds = interleave(sides, repeats, clock=time.process_time)
        if found["personal"] != found["shared"]:
            raise AssertionError(f"{name}: {found} predictions are right, which should be equal")
        lines.append(ratio(f"{name}, a model for each client, in the time of one for all", *seconds.values(), None))
    return lines


def _test(
    side: str, recipe: AdapterRecipe, people: Population, build: Build, known: Known, found: dict[str, float]
) -> None:
    """How many predictions are right, by the engine."""
    commits = evaluate(
        recipe, roster(people, BATCH), build, known, test=Test(batch_size=BATCH), executor=Serial(people)
    )
    found[side] = sum(score.values.get("correct", 0.0) for commit in commits for score in commit.scores)


if __name__ == "__main__":
    for line in run():
        print(line)
