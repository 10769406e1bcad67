"""Trying guards without running adapters again: what both models say is written down once, and guards are shown that.

    python -m benchmarks.guard_records record cifar10 3 em bbse   # the plays, and the streams of guard 3's trial
    python -m benchmarks.guard_records try                        # today's guard on all records
    python -m benchmarks.guard_records try most=0.02 window=40    # with other options

A recorded adapter runs all the time: a guard that goes back finds it as it had become. Streams at ten times the rate
and of single images are left out, for time. Records are files of the cache folder; the streams of a trial that is still
to come are not recorded.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from torch import Tensor, nn

from acclimate import trees
from acclimate.adapters.guard import Guard
from acclimate.calibration.guard import Guard as Teaching
from acclimate.contracts import Adapter, AdapterRecipe
from acclimate.data.folders import cache_folder, write_whole
from acclimate.engine.seeds import seed_call
from acclimate.experiment.catalog import ADAPTERS
from acclimate.harm import Look, Source, width
from acclimate.mixture import Answers
from acclimate.rule import DEFAULT, Rule, Said, Sums, solved, summed
from benchmarks import guard as trial
from benchmarks.guard import Home, Meeting, Verdict, verdict

STREAMS = ("one class", "constant", "noise", "there and back", "label shift", "nan")


class Record(NamedTuple):
    """What an adapter and the source model have said."""

    answers: Answers  # of the source model to the images of all clients
    plays: list[list[Said]]  # of each client
    streams: dict[str, list[list[Said]]]  # by name, one for each seed


def record(data: str, revision: int, adapter: str) -> Record:
    """What an adapter and the source model say on the plays of every client and on the streams of an earlier trial."""
    if revision not in trial.TRIALS or revision >= Guard.revision:
        past = [str(guard) for guard in trial.TRIALS if guard < Guard.revision]
        sys.exit(f"expected a guard whose trial is over ({', '.join(past)}); found {revision}")
    seeds, trial.CORRUPTIONS = trial.TRIALS[revision]
    home = Home(data)
    known, recipe = home.known(adapter), AdapterRecipe(ADAPTERS[adapter].load(), trial.OPTIONS.get(adapter, {}))
    net, of = home.net(known), {name: known.of(0)[name] for name in recipe.needs}
    classes, teaching = home.people.classes, Teaching(recipe)
    found = Record(Answers.none(classes, width(net, classes)), [], {})
    for id, (_, check) in home.people.source.items():
        batches = list(home.people.examples(check).batches(500))
        x, y = (torch.cat(parts) for parts in zip(*batches, strict=True))
        seed_call("guard", id)
        played = recipe(copy.deepcopy(net), **{name: known.of(id)[name] for name in recipe.needs})
        found = found._replace(answers=found.answers.plus(teaching.answers(played, batches, classes)))
        found.plays.append(list(teaching.played(played, x, y, classes)))
    for seed in seeds:
        for name, met in home.streams(seed).items():
            if name in STREAMS:
                found.streams.setdefault(name, []).append(list(said(recipe(copy.deepcopy(net), **of), met, seed)))
    return found


def said(adapter: Adapter, met: Meeting, seed: int) -> Iterator[Said]:
    """Batch by batch; what is not finite is met by no adapter with a guard, and starts one anew."""
    source, first = Source(adapter), adapter.state()
    for t, (x, y) in enumerate(zip(met.x.split(met.size), met.y.split(met.size), strict=True)):
        seed_call(seed, t)
        if x.isfinite().all():
            adapted, plain = adapter(x), source.look(x)
            if not adapted.isfinite().all():
                adapter.load_state(first)
                adapted = plain.logits
            yield Said(plain, adapted, source.drift(), y)


class Replay(Adapter):
    """Answers as recorded: an example is its number in a batch."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__(net)
        self.now: Said

    def forward(self, x: Tensor) -> Tensor:
        return self.now.adapted[x[:, 0].long()]


class ReplayedSource:
    """The source model's side of it."""

    def __init__(self, of: Replay) -> None:
        self.of = of

    def __call__(self, x: Tensor) -> Tensor:
        return self.look(x).logits

    def look(self, x: Tensor) -> Look:
        which, source = x[:, 0].long(), self.of.now.source
        return Look(source.logits[which], source.features[which], source.inputs)

    def drift(self) -> float:
        return self.of.now.drift


def shown(stream: list[Said], rule: Rule, options: Mapping[str, Any]) -> dict[str, float]:
    """Accuracies on a recorded stream in per cent: of the source model, of the adapter and with a guard."""
    guard = Guard(nn.Identity(), adapter=AdapterRecipe(Replay), calibrated=True, rule=rule, **options)
    assert isinstance(guard.inner, Replay)
    guard.source = ReplayedSource(guard.inner)  # type: ignore[assignment]
    right, count = {"source": 0, "alone": 0, "guarded": 0}, 0
    for now in stream:
        guard.inner.now = now
        answers = {
            "source": now.source.logits,
            "alone": now.adapted,
            "guarded": guard(torch.arange(len(now.right))[:, None].float()),
        }
        for who, logits in answers.items():
            right[who] += int((logits.argmax(-1) == now.right).sum())  # -1: not scored
        count += int((now.right >= 0).sum())
    return {who: 100 * of / count for who, of in right.items()}


def tried(found: Record, options: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Cells of one adapter, with a guard whose rule its plays teach."""
    totals = [summed(play, options.get("window", Teaching.window), found.answers) for play in found.plays]
    squares, gains = sum(one.squares for one in totals), sum(one.gains for one in totals)
    rule = solved(Sums(squares, gains, found.answers), Teaching.ridge, DEFAULT.weights)  # type: ignore[arg-type]
    for name in STREAMS:
        for stream in found.streams[name]:
            yield {"guard": Guard.revision, "stream": name, **shown(stream, rule, options)}


def told(of: Verdict) -> str:
    """A verdict in a line."""
    (_, near, _), (_, never, _), (_, kept, _) = of.wanted()
    worst = min(cell["guarded"] - cell["source"] for cell in of.cells)
    return f"near {near:.1f} %, not far {never:.1f} %, worst {worst:+.1f}, kept {kept:.1f} % of {len(of.gains)} gains"


def main() -> None:
    torch.set_num_threads(1)
    folder: Path = cache_folder() / "guard-records"
    match sys.argv[1:]:
        case ["record", data, revision, *adapters]:
            folder.mkdir(parents=True, exist_ok=True)
            for adapter in adapters:
                blob = trees.dump(record(data, int(revision), adapter))
                write_whole(folder / f"{data}-{adapter}.safetensors", lambda file, blob=blob: file.write(blob))
                print(data, adapter, flush=True)
        case ["try", *words]:
            options = {key: yaml.safe_load(value) for key, _, value in (word.partition("=") for word in words)}
            cells: list[dict[str, Any]] = []
            if not (paths := sorted(folder.glob("*.safetensors"))):
                sys.exit(f"no records in {folder}; make some: python -m benchmarks.guard_records record cifar10 3 em")
            for path in paths:
                cells += (own := list(tried(trees.load(path.read_bytes()), options)))
                print(f"{path.stem}: {told(verdict(own, Guard.revision))}", flush=True)
            print(f"all: {told(verdict(cells, Guard.revision))}")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
