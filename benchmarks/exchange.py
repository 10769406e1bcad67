"""A slot of a test with exchanges beside its bare arithmetic: what states, messages and bookkeeping cost.

The bare side keeps one live adapter per client, mixes in place and saves nothing; the engine moves one adapter from
client to client, so that memory does not grow with them and every slot can be resumed. Both must predict the same.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

import numpy as np
import torch

from acclimate import params, trees
from acclimate.adapters.bn_adapt import BNAdapt
from acclimate.adapters.tta_grad import TTAGrad
from acclimate.aggregators.fedavg import FedAvg
from acclimate.aggregators.mixing import combine
from acclimate.contracts import Adapter, AdapterRecipe, Upload
from acclimate.engine.checkpoint import Checkpoint
from acclimate.engine.evaluate import Test, evaluate
from acclimate.engine.executor import Executor, Processes, Serial
from acclimate.engine.known import Known, Outcome
from acclimate.engine.roster import roster
from acclimate.examples import Images
from acclimate.models.build import Build
from acclimate.models.resnet import resnet8
from acclimate.scenarios.population import Held, Population, Stream
from acclimate.training.fedavg import FedAvg as TrainFedAvg
from acclimate.training.fedavg import Global
from acclimate.trees import Nest
from benchmarks.measure import Line, interleave, ratio

CLIENTS, SLOTS, BATCH = 20, 4, 10
ADAPTERS = {
    "TTA-bn": AdapterRecipe(BNAdapt, {"prior": 0.0, "unbiased": False}),
    "TTA-grad": AdapterRecipe(TTAGrad),
    "TTA-grad, all": AdapterRecipe(TTAGrad, {"trains": "all"}),
}


def told(model: params.Params) -> Known:
    """A model that no phase has trained."""
    saved = Checkpoint()
    saved.commit(0, trees.dump(Global(model, 0)))
    return Known([Outcome(TrainFedAvg(), saved, 0)])


def run(repeats: int = 5) -> list[Line]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    people = population()
    build = Build(resnet8, people.classes, people.shape, people.mean, people.std)
    model = params.of(build())
    known, lines = told(model), []
    for name, recipe in ADAPTERS.items():
        found: dict[str, float] = {}
        adapters = [recipe(params.load(build(), model)) for _ in range(CLIENTS)]
        first = adapters[0].state()

        def engine(recipe: AdapterRecipe = recipe, found: dict[str, float] = found) -> None:
            found["engine"] = sum(tested(recipe, people, build, known, Serial()))

        def bare(adapters: Sequence[Adapter] = adapters, first: Nest = first, found: dict[str, float] = found) -> None:
            for adapter in adapters:
                adapter.load_state(first)
            found["bare"] = arithmetic(adapters, people)

        engine()
        bare()
        seconds = interleave({"engine": engine, "bare": bare}, repeats, clock=time.process_time)
        if found["engine"] != found["bare"]:
            raise AssertionError(f"{name}: {found} predictions are right, which should be equal")
        ratios = sorted(a / b for a, b in zip(seconds["engine"], seconds["bare"], strict=True))
        what = f"a slot of FedAvg with {name}, in its bare arithmetic"
        lines.append(Line(what, ratios[len(ratios) // 2], ratios[0], ratios[-1], "-"))
    return [*lines, *mixing(model, repeats), workers(people, build, known, repeats)]


def tested(recipe: AdapterRecipe, people: Population, build: Build, known: Known, executor: Executor) -> list[float]:
    """How many predictions are right, slot by slot, by the engine."""
    executor.meet(people)
    test, members = Test(batch_size=BATCH), roster(people, BATCH)
    commits = evaluate(recipe, members, build, known, aggregator=FedAvg(), test=test, executor=executor)
    return [score.values.get("correct", 0.0) for commit in commits for score in commit.scores]


def workers(people: Population, build: Build, known: Known, repeats: int) -> Line:
    """The largest messages there are, models of 5 MB up and down in every slot: what a second core brings."""
    found: dict[str, list[float]] = {}

    def test(name: str, executor: Executor) -> None:
        found[name] = tested(ADAPTERS["TTA-grad, all"], people, build, known, executor)

    with Processes(2) as two:
        sides = {"one": partial(test, "one", Serial()), "two": partial(test, "two", two)}
        sides["two"]()
        seconds = interleave(sides, repeats)
    assert found["one"] == found["two"]
    return ratio("slots of FedAvg with TTA-grad, all: two workers against one", *seconds.values(), least=1.6)


def mixing(model: params.Params, repeats: int) -> list[Line]:
    """Mixtures of twenty models in pieces that stay in the cache, beside whole tensors at once."""
    models = [
        {name: t + 0.01 * torch.randn(t.shape) for name, t in model.items() if t.is_floating_point()}
        for _ in range(CLIENTS)
    ]
    chosen = {"one mean": torch.full((CLIENTS,), 1 / CLIENTS), "one mixture each": torch.rand(CLIENTS, CLIENTS)}
    lines = []
    for name, w in chosen.items():

        def whole(w: torch.Tensor = w) -> params.Params:
            stacked = {key: torch.stack([one[key] for one in models]).double() for key in models[0]}
            mixed = {key: torch.tensordot(w.double(), many, dims=1) for key, many in stacked.items()}
            return {key: params.cast(tensor, model[key].dtype) for key, tensor in mixed.items()}

        def pieces(w: torch.Tensor = w) -> params.Params:
            return {key: combine(w, [one[key] for one in models]) for key in models[0]}

        torch.testing.assert_close(pieces(), whole(), rtol=1e-6, atol=1e-7)
        seconds = interleave({"whole": whole, "pieces": pieces}, repeats, clock=time.process_time)
        lines.append(ratio(f"mixing 20 models, {name}: in pieces against at once", *seconds.values(), least=None))
    return lines


def arithmetic(adapters: Sequence[Adapter], people: Population) -> float:
    """How many predictions are right, with nothing but the calls that a slot cannot do without."""
    slots = [stream.slots(BATCH) for stream in people.streams]
    right, aggregator = 0.0, FedAvg()
    for t in range(SLOTS):
        batches = [people.examples(slots[client][t].parts[0]) for client in range(CLIENTS)]
        images = [batch.x for batch in batches]
        for adapter, x in zip(adapters, images, strict=True):
            adapter.adapt(x)
        uploads = [Upload(client, t, adapters[client].moving(), None, BATCH) for client in range(CLIENTS)]
        with torch.no_grad():
            downloads = aggregator.mix(None, uploads, t).downloads
        for adapter, x, batch, download in zip(adapters, images, batches, downloads, strict=True):
            adapter.load_shared(download)
            right += float((adapter.predict(x).argmax(-1) == batch.labels).sum())
    return right


def population() -> Population:
    """Random images: the arithmetic does not look at them."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (CLIENTS * SLOTS * BATCH, 32, 32, 3), dtype=np.uint8)
    rows = np.arange(len(images)).reshape(CLIENTS, -1)
    streams = [Stream(client, "test", (("none", Held(0, rows[client])),)) for client in range(CLIENTS)]
    pools = ((Images(images), rng.integers(0, 10, len(images))),)
    return Population(10, (0.5,) * 3, (0.25,) * 3, pools, streams=streams)
