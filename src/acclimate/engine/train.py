"""Running a phase: rounds of client updates, folded as they arrive, saved round by round."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import nn

from acclimate import trees
from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Task
from acclimate.engine.checkpoint import Checkpoint, Metric
from acclimate.engine.executor import Executor, Serial, chunks, in_order, one_thread
from acclimate.engine.live import Live
from acclimate.engine.seeds import generator, seed_call
from acclimate.errors import ConfigError
from acclimate.scenarios.population import Population
from acclimate.trees import Nest

Cohort = int | Literal["all"]
Progress = Callable[[int, int, str], None]  # done, of how many, what just happened


@dataclass(frozen=True)
class Outcome:
    """A finished phase: what it exports, to everybody and to each client."""

    algorithm: Algorithm[Any, Any]
    checkpoint: Checkpoint
    round: int

    def export(self, client: int | None) -> Knowledge:
        """What a client takes from this phase; None: one that never took part."""
        state = None if client is None else self.checkpoint.client(client, self.round)
        server = trees.load(self.checkpoint.server(self.round))
        return self.algorithm.export(server, None if state is None else trees.load(state))


@dataclass(frozen=True)
class Known:
    """What all phases so far export; later phases replace what earlier ones exported under the same name."""

    outcomes: Sequence[Outcome] = ()

    @property
    def personal(self) -> bool:
        """Whether clients know different things."""
        return any(outcome.checkpoint.has_clients() for outcome in self.outcomes)

    def of(self, client: int | None) -> Knowledge:
        """What a client knows; None: what everybody knows."""
        known: Knowledge = {}
        for outcome in self.outcomes:
            known.update(outcome.export(client))
        return known


@dataclass(frozen=True)
class Phase:
    """The clients' side of a phase: what a worker needs to know of it."""

    algorithm: Algorithm[Any, Any]
    population: Population
    build: Callable[[int | None], nn.Module]
    seed: int
    position: int
    known: bytes  # what everybody knows
    live: Live = field(init=False)
    task: Task = field(init=False)

    def __post_init__(self) -> None:
        population = self.population
        task = Task(
            classes=population.classes,
            shape=population.shape,
            source=tuple(population.source),
            build=self.build,
            known=trees.load(self.known),
            public=None if population.public is None else population.examples(population.public),
        )
        object.__setattr__(self, "live", Live(self.build))
        object.__setattr__(self, "task", task)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.algorithm, self.population, self.build, self.seed, self.position, self.known)

    def prepare(self, common: bytes) -> Nest:
        return trees.load(common)

    def run(self, server: Nest, task: dict[str, Any]) -> dict[str, Any]:
        """One chunk of clients, one after another; their replies are folded before they travel."""
        replies, states, traffic = Replies(self.algorithm.keeps), {}, {}
        for id, state, known in zip(task["ids"], task["states"], task["known"], strict=True):
            place = (self.seed, self.position, task["round"], id)
            client = self.client(id, place, self.task.known if known is None else trees.load(known))
            message = self.algorithm.broadcast(server, id)
            if state is None:
                seed_call(*place, "client_init")
                before = self.algorithm.client_init(client)
            else:
                before = trees.load(state)
            seed_call(*place, "client_update")
            reply, after = self.algorithm.client_update(message, before, client)
            replies.add(id, reply)
            traffic[id] = (trees.nbytes(message), trees.nbytes(reply.update))
            if id not in replies.left_out and after is not None:
                states[id] = trees.dump(after)
        return {"replies": trees.dump(replies.pack()), "states": states, "traffic": traffic}

    def client(self, id: int, place: tuple[int, ...], known: Knowledge) -> Client:
        train, validation = self.population.source[id]
        return Client(
            id=id,
            train=self.population.examples(train),
            validation=self.population.examples(validation),
            task=self.task,
            net=partial(self.live, client=id),
            rng=generator(*place, "batches"),
            known=known,
        )


def train(
    algorithm: Algorithm[Any, Any],
    population: Population,
    build: Callable[[int | None], nn.Module],
    *,
    rounds: int,
    cohort: Cohort = "all",
    keep_every: int | None = None,
    seed: int = 0,
    position: int = 0,
    known: Known | None = None,
    executor: Executor | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run a phase for `rounds` rounds, going on after the last round of `checkpoint`."""
    known, executor, saved = known or Known(), executor or Serial(), checkpoint or Checkpoint()
    ids = tuple(population.source)
    if cohort != "all" and not 1 <= cohort <= len(ids):
        raise ConfigError([f"cohort: {cohort} clients asked for, 1 to {len(ids)} (or 'all') possible"], "a phase")
    with one_thread():
        phase = Phase(algorithm, population, build, seed, position, trees.dump(known.of(None)))
        if saved.last() is None:
            seed_call(seed, position, 0, "init")
            saved.commit(0, trees.dump(algorithm.init(phase.task)), keep=bool(keep_every))
        done = saved.last() or 0
        if done < rounds:
            executor.install(phase)
        blob = saved.server(done)
        for round in range(done + 1, rounds + 1):
            replies, states, metrics = _gather(executor, blob, _tasks(round, ids, cohort, phase, saved, known))
            if len(replies):
                seed_call(seed, position, round, "server_update")
                blob = trees.dump(algorithm.server_update(trees.load(blob), replies))
            keep = bool(keep_every) and round % (keep_every or 1) == 0
            rows: list[Metric] = [(round, id, name, value) for id, m in metrics.items() for name, value in m.items()]
            saved.commit(round, blob, states, rows, keep)
            if progress is not None:
                progress(round, rounds, _headline(replies, metrics))
    return Outcome(algorithm, saved, rounds)


def sample(seed: int, position: int, round: int, ids: Sequence[int], cohort: Cohort) -> Sequence[int]:
    """The clients of a round, without replacement, in the order of the population."""
    if cohort == "all" or cohort == len(ids):
        return ids
    chosen = torch.randperm(len(ids), generator=generator(seed, position, round, "cohort"))[: int(cohort)]
    return [ids[i] for i in chosen.sort().values.tolist()]


def _tasks(
    round: int, ids: Sequence[int], cohort: Cohort, phase: Phase, saved: Checkpoint, known: Known
) -> Iterator[dict[str, Any]]:
    personal = known.personal
    for chunk in chunks(sample(phase.seed, phase.position, round, ids, cohort)):
        yield {
            "round": round,
            "ids": chunk,
            "states": [saved.client(id) for id in chunk],
            "known": [trees.dump(known.of(id)) if personal else None for id in chunk],
        }


def _gather(
    executor: Executor, blob: bytes, tasks: Iterator[dict[str, Any]]
) -> tuple[Replies, dict[int, bytes], dict[int, dict[str, float]]]:
    """Fold the chunks in their order, whichever arrives first."""
    replies: Replies | None = None
    states: dict[int, bytes] = {}
    traffic: dict[int, tuple[int, int]] = {}
    for result in in_order(executor.run(blob, tasks)):
        chunk = Replies.unpack(trees.load(result["replies"]))
        if replies is None:
            replies = chunk
        else:
            replies.merge(chunk)
        states.update(result["states"])
        traffic.update(result["traffic"])
    assert replies is not None
    metrics = {
        id: {**values, "bytes_down": traffic[id][0], "bytes_up": traffic[id][1]}
        | ({"left_out": 1.0} if id in replies.left_out else {})
        for id, values in replies.metrics.items()
    }
    return replies, states, metrics


def _headline(replies: Replies, metrics: dict[int, dict[str, float]]) -> str:
    losses = [m["loss"] for id, m in metrics.items() if "loss" in m and id not in replies.left_out]
    text = f"loss {sum(losses) / len(losses):.4f}" if losses else f"{len(replies)} clients"
    if replies.left_out:
        named = ", ".join(map(str, itertools.islice(replies.left_out, 5)))
        text += f"; left out for values that are not finite: {len(replies.left_out)} (clients {named})"
    return text


def at_round(outcome: Outcome, round: int) -> Outcome:
    """The same phase after an earlier kept round."""
    return replace(outcome, round=round)
