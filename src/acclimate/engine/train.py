"""The server's side of a phase: rounds of client updates, folded as they arrive, saved round by round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch

from acclimate import trees
from acclimate.contracts import Algorithm
from acclimate.engine.checkpoint import Checkpoint, Metric
from acclimate.engine.door import NOT_FINITE, told
from acclimate.engine.executor import Executor, chunks, in_order, one_thread
from acclimate.engine.known import Known, Outcome, Post
from acclimate.engine.live import Build
from acclimate.engine.messages import Folded, Part
from acclimate.engine.roster import Roster
from acclimate.engine.seeds import generator, seed_call
from acclimate.engine.trainee import Training
from acclimate.errors import ConfigError, PhaseFailed
from acclimate.trees import Nest, Parcel

Cohort = int | Literal["all"]
Progress = Callable[[int, int, str], None]  # done, of how many, what just happened


def train(
    algorithm: Algorithm[Any, Any],
    roster: Roster,
    build: Build,
    *,
    executor: Executor,
    rounds: int,
    cohort: Cohort = "all",
    keep_every: int | None = None,
    seed: int = 0,
    position: int = 0,
    known: Known | None = None,
    checkpoint: Checkpoint | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run a phase for `rounds` rounds, going on after the last round of `checkpoint`."""
    known, saved, ids = known or Known(), checkpoint or Checkpoint(), roster.source
    if cohort != "all" and not 1 <= cohort <= len(ids):
        raise ConfigError([f"cohort: {cohort} clients asked for, 1 to {len(ids)} (or 'all') possible"], "a phase")
    training = Training(algorithm, build, seed, position, ids, known.exports)
    with one_thread():
        if saved.last() is None:
            task = training.task(roster.classes, roster.shape)
            seed_call(seed, position, 0, "init")
            saved.commit(0, trees.dump(algorithm.init(task)), keep=bool(keep_every))
        done, reasons = saved.last() or 0, dict[int, str]()
        if done < rounds:
            executor.install(training)
        blob = saved.server(done)
        server = trees.load(blob)
        for round in range(done + 1, rounds + 1):
            took_part = sample(seed, position, round, ids, cohort)
            cut = chunks(took_part)
            parts = _parts(training, server, round, cut, saved, known)
            folded = _gather(executor.run(parts, count=len(cut)))
            if folded.replies.weight > 0:
                seed_call(seed, position, round, "server_update")
                blob = trees.dump(algorithm.server_update(server, folded.replies))
                server = trees.load(blob)  # the same bits and layout as for whoever resumes
            metrics = _metrics(folded)
            rows: list[Metric] = [(round, id, name, value) for id, m in metrics.items() for name, value in m.items()]
            keep = bool(keep_every) and round % (keep_every or 1) == 0
            saved.commit(round, blob, {id: state.seal() for id, state in folded.states.items()}, rows, keep)
            if progress is not None:
                progress(round, rounds, _headline(folded, metrics))
            reasons = {**_left_out(folded), **folded.replies.lost}
    if not saved.was_useful():
        raise PhaseFailed(
            f"phase {type(algorithm).__name__}: in none of its {rounds} rounds could any client's reply be used; in "
            f"the last, of no use: {told(reasons)}. Where values are not finite a smaller learning rate is the usual "
            "remedy; where replies look wrong, see what the phase `expects`"
        )
    return Outcome(algorithm, saved, rounds, seed, position, ids[0])


def sample(seed: int, position: int, round: int, ids: Sequence[int], cohort: Cohort) -> Sequence[int]:
    """The clients of a round, without replacement, in the order of the population."""
    if cohort == "all" or cohort == len(ids):
        return ids
    chosen = torch.randperm(len(ids), generator=generator(seed, position, round, "cohort"))[: int(cohort)]
    return [ids[i] for i in chosen.sort().values.tolist()]


def at_round(outcome: Outcome, round: int) -> Outcome:
    """The same phase after an earlier kept round."""
    return replace(outcome, round=round)


def _parts(
    training: Training, server: Nest, round: int, cut: Sequence[Sequence[int]], saved: Checkpoint, known: Known
) -> Iterator[list[Part]]:
    """Everybody's task, in chunks."""
    post = Post()
    for chunk in cut:
        parts = []
        for id in chunk:
            seed_call(training.seed, training.position, round, id, "broadcast")
            message, state = training.algorithm.broadcast(server, id), saved.client(id)
            parts.append(Part(id, round, post.parcel(message), None if state is None else Parcel(state), known.own(id)))
        yield parts


def _gather(results: Iterator[tuple[int, Folded]]) -> Folded:
    """Fold the chunks in their order, whichever arrives first."""
    folded: Folded | None = None
    for chunk in in_order(results):
        if folded is None:
            folded = chunk
        else:
            folded.replies.merge(chunk.replies)
            folded.states.update(chunk.states)
            folded.traffic.update(chunk.traffic)
            folded.refused.update(chunk.refused)
    assert folded is not None
    return folded


def _metrics(folded: Folded) -> dict[int, dict[str, float]]:
    replies = folded.replies
    metrics: dict[int, dict[str, float]] = {
        id: {**values, "bytes_down": folded.traffic[id][0], "bytes_up": folded.traffic[id][1]}
        | ({"left_out": 1.0} if id in replies.left_out else {})
        for id, values in replies.metrics.items()
    }
    return metrics | {id: {"lost": 1.0} for id in replies.lost}


def _left_out(folded: Folded) -> dict[int, str]:
    """Who was left out of a round, and why."""
    return {id: folded.refused.get(id, NOT_FINITE) for id in folded.replies.left_out}


def _headline(folded: Folded, metrics: dict[int, dict[str, float]]) -> str:
    replies = folded.replies
    losses = [m["loss"] for id, m in metrics.items() if "loss" in m and id not in replies.left_out]
    text = f"loss {sum(losses) / len(losses):.4f}" if losses else f"{len(replies)} clients"
    if replies.left_out:
        text += f"; left out: {told(_left_out(folded))}"
    if replies.lost:
        text += f"; never answered: {told(replies.lost)}"
    return text
