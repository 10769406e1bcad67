"""Running a test: every client's stream, alone or with exchanges, in pieces that can be saved and resumed."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import nn

from acclimate import params, trees
from acclimate.contracts import Adapter, Aggregator, Upload
from acclimate.engine.exchange import Server, keep
from acclimate.engine.executor import Executor, Serial, one_thread
from acclimate.engine.seeds import seed_call
from acclimate.engine.testing import Paused, Score, Test, Testing
from acclimate.engine.train import Known, Progress
from acclimate.errors import ConfigError, MissingKnowledge
from acclimate.params import Params
from acclimate.scenarios.availability import HERE, LATE
from acclimate.scenarios.population import Population, Stream
from acclimate.trees import Parcel

__all__ = ["Commit", "Figure", "Paused", "Resume", "Score", "Test", "evaluate"]

MOST_SAVING = 0.04  # of the time of a test: everybody's state may be large


class Figure(NamedTuple):
    """Something to draw: from an adapter (client ≥ 0) or an aggregator (client -1)."""

    client: int
    stream: str
    slot: int
    values: bytes


@dataclass
class Commit:
    """What happened since the last commit: to be saved as a whole."""

    scores: list[Score] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    members: dict[int, Paused] = field(default_factory=dict)  # position in the list of streams → where it stands
    servers: dict[str, tuple[int, bytes]] = field(default_factory=dict)  # stream → next slot, aggregator state


Resume = Commit  # the newest members and servers of all commits so far


def evaluate(
    make: Callable[..., Adapter],
    population: Population,
    build: Callable[[int | None], nn.Module],
    known: Known,
    *,
    needs: Sequence[str] = (),
    aggregator: Aggregator[Any] | None = None,
    streams: Sequence[Stream] | None = None,
    test: Test | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    resume: Resume | None = None,
    commit_seconds: float = 10.0,
    progress: Progress | None = None,
) -> Iterator[Commit]:
    """Adapt and score `make(net, **knowledge)` on every stream.

    Yields what to save about every `commit_seconds`, less often where saving takes more than 4 % of the time, and
    after every piece of work if it is 0; where it was saved up to goes into `resume` after an interruption.
    """
    chosen = list(population.streams if streams is None else streams)
    check_knowledge(known, needs, chosen)
    personal = known.personal
    testing = Testing(
        make=make,
        needs=tuple(needs),
        population=population,
        streams=chosen,
        build=build,
        test=test or Test(),
        seed=seed,
        known=None if personal else trees.dump(known.of(None)),
        signs=aggregator is not None and aggregator.signs,
    )
    run = _Run(
        testing,
        known if personal else None,
        executor or Serial(),
        commit_seconds,
        resume or Commit(),
        progress,
    )
    with one_thread():
        run.executor.install(testing)
        yield from run.alone() if aggregator is None else run.together(aggregator)


def check_knowledge(known: Known, needs: Sequence[str], streams: Sequence[Stream]) -> None:
    """Name what is missing, and for whom, before the first batch."""
    clients = list(dict.fromkeys(stream.client for stream in streams))
    for client in clients if known.personal else clients[:1]:
        found = known.of(client)
        for name in ("model", *needs):
            if name in found:
                continue
            phases = ", ".join(type(outcome.algorithm).__name__ for outcome in known.outcomes) or "none"
            if known.personal:
                raise MissingKnowledge(
                    f"client {client} has no '{name}': the phases ({phases}) keep part of it on the clients that "
                    "took part, and this one never did. Test clients that trained (in scenario 'twofold': "
                    "new: false; and cohort: all), or use phases that export to everybody"
                )
            raise MissingKnowledge(
                f"'{name}' is exported by no phase (phases: {phases}); add one that exports it before the test"
            )


@dataclass
class _Run:
    testing: Testing
    personal: Known | None
    executor: Executor
    commit_seconds: float
    resume: Resume
    progress: Progress | None

    def __post_init__(self) -> None:
        streams = self.testing.streams
        self.lengths = [len(stream.slots(self.testing.test.batch_size)) for stream in streams]
        blank = [[0] * self.testing.population.classes for _ in range(2)]
        self.at = {m: self.resume.members.get(m, Paused(0, None, blank)) for m in range(len(streams))}
        position: dict[str, Iterator[int]] = defaultdict(count)
        self.homes = [next(position[stream.name]) for stream in streams]  # clients of one stream work side by side
        self.since, self.saving, self.pending = time.monotonic(), 0.0, Commit()
        self.servers: dict[str, tuple[int, Server]] = {}  # since the last commit

    def alone(self) -> Iterator[Commit]:
        """Without an aggregator clients are independent: each runs as far as the time for one piece allows."""
        while ahead := [m for m in self.at if self.at[m].slot < self.lengths[m]]:
            tasks = [self._task("alone", m, paused=self.at[m], seconds=self.commit_seconds) for m in ahead]
            for index, (paused, scores, figures) in self.executor.run(b"", tasks):
                stream = self.testing.streams[ahead[index]]
                self.pending.scores += scores
                self.pending.figures += [Figure(stream.client, stream.name, t, blob) for t, blob in figures]
                self._advance(ahead[index], paused)
                yield from self._due(min(1.0, self.commit_seconds))
        yield from self._due(0.0)

    def together(self, aggregator: Aggregator[Any]) -> Iterator[Commit]:
        """With an aggregator all clients of a stream go slot by slot: adapt, exchange, predict."""
        for name in dict.fromkeys(stream.name for stream in self.testing.streams):
            members = [m for m in self.at if self.testing.streams[m].name == name]
            presence = self._presence(members)
            slot, server = self._begin(aggregator, name, members)
            for t in range(slot, max(self.lengths[m] for m in members)):
                now = {m: presence[m][t] for m in members if t < self.lengths[m]}
                server = self._slot(aggregator, server, name, now, t)
                self.servers[name] = (t + 1, server)
                yield from self._due(self.commit_seconds)  # everybody's state: too much to save for every slot
        yield from self._due(0.0)

    def _presence(self, members: list[int]) -> dict[int, NDArray[np.int64]]:
        """Who exchanges when."""
        table, seed = self.testing.population.availability.table, self.testing.seed
        return {
            m: table(seed, self.testing.streams[m].client, position, self.lengths[m])
            for position, m in enumerate(members)
        }

    def _begin(self, aggregator: Aggregator[Any], name: str, members: list[int]) -> tuple[int, Server]:
        if name in self.resume.servers:
            slot, blob = self.resume.servers[name]
            ahead = [m for m in members if self.at[m].slot < self.lengths[m]]
            self._at_home([{"step": "resume", "member": m, "state": self.at[m].state} for m in ahead])
            return slot, trees.load(blob)
        started = self._at_home([self._task("start", m, slot=0) for m in members])
        uploads: list[Upload] = [upload.open() for upload in started]
        if not any(upload.params for upload in uploads):
            raise ConfigError(
                [f"aggregator {type(aggregator).__name__}: this adapter shares nothing, so there is nothing to mix; "
                 "use it without an aggregator, or another adapter (bn-adapt, tent, em, bbse)"], "a system",
            )  # fmt: skip
        seed_call(self.testing.seed, "test", name, "init")
        return 0, Server(trees.transform(params.copy, aggregator.init(uploads)), {})

    def _slot(
        self, aggregator: Aggregator[Any], server: Server, name: str, presence: Mapping[int, int], t: int
    ) -> Server:
        here = list(presence)
        adapted = self._at_home([self._task("adapt", m, slot=t) for m in here])
        downloads: dict[int, Parcel] = {}
        traffic: dict[int, dict[str, float]] = {m: {} for m in here}
        if (t + 1) % self.testing.test.sync_every == 0:
            finite = {m: upload for m, (upload, _, _) in zip(here, adapted, strict=True) if upload is not None}
            sent, late = (
                {m: upload.open() for m, upload in finite.items() if presence[m] == when} for when in (HERE, LATE)
            )
            server, mixed = self._mix(aggregator, server, name, sent, late, t)
            for m, upload in {**sent, **late}.items():
                traffic[m]["bytes_up"] = trees.nbytes(upload.params) + trees.nbytes(upload.signature)
            parcels = {id(download): Parcel(download) for download in mixed.values()}  # many may get the same object
            for m, download in mixed.items():
                downloads[m] = parcels[id(download)]
                traffic[m]["bytes_down"] = trees.nbytes(download)
            traffic |= {m: {**traffic[m], "missed": 1.0} for m in here if presence[m] != HERE}
        predicted = self._at_home(
            [self._task("predict", m, slot=t, download=downloads.get(m), tally=self.at[m].tally) for m in here]
        )
        for m, (upload, seconds, figures), (score, tally) in zip(here, adapted, predicted, strict=True):
            values = {**score.values, **traffic[m], "seconds": score.values["seconds"] + seconds}
            if upload is None:
                values["left_out"] = 1.0
            self.pending.scores.append(score._replace(values=values))
            if figures is not None:
                self.pending.figures.append(Figure(score.client, name, t, figures))
            self._advance(m, Paused(t + 1, None, tally))
        return server

    def _mix(
        self,
        aggregator: Aggregator[Any],
        server: Server,
        name: str,
        sent: dict[int, Upload],
        late: dict[int, Upload],
        t: int,
    ) -> tuple[Server, dict[int, Params]]:
        """One exchange: the server after it, and the downloads."""
        availability = self.testing.population.availability
        seed_call(self.testing.seed, "test", name, t, "mix")
        mix = aggregator.mix(server.state, [*sent.values(), *server.absent(sent, t)], t)
        if mix.figures:
            self.pending.figures.append(Figure(-1, name, t, trees.dump(mix.figures)))
        kept = server.kept
        if aggregator.keeps and not availability.full:
            kept = keep(kept, sent, late, t, availability.delay)
        # Contiguous copies: what goes on has the same bits and layout as what is saved.
        return Server(trees.transform(params.copy, mix.state), kept), dict(zip(sent, mix.downloads, strict=True))

    def _task(self, step: str, member: int, **more: Any) -> dict[str, Any]:
        known = None
        if self.personal is not None:
            known = trees.dump(self.personal.of(self.testing.streams[member].client))
        return {"step": step, "member": member, "known": known, **more}

    def _at_home(self, tasks: list[dict[str, Any]]) -> list[Any]:
        """Results of tasks, each done by the worker that keeps the state of its client."""
        results = dict(self.executor.run(b"", tasks, [self.homes[task["member"]] for task in tasks]))
        return [results[index] for index in range(len(tasks))]

    def _advance(self, member: int, paused: Paused) -> None:
        if paused.slot == self.lengths[member]:
            stream, paused = self.testing.streams[member], paused._replace(state=None)
            classes = range(len(paused.tally[0]))
            values = {f"correct/{c}": float(paused.tally[0][c]) for c in classes if paused.tally[1][c]}
            values |= {f"count/{c}": float(paused.tally[1][c]) for c in classes if paused.tally[1][c]}
            self.pending.scores.append(Score(stream.client, stream.name, -1, "", values))
        self.at[member] = self.pending.members[member] = paused

    def _due(self, seconds: float) -> Iterator[Commit]:
        """Hand over what is pending, if the last time was so many seconds ago; later where saving itself takes long."""
        if self.progress is not None:
            self.progress(sum(paused.slot for paused in self.at.values()), sum(self.lengths), "")
        least = max(seconds, self.saving / MOST_SAVING) if seconds else 0.0
        if self.pending.members and time.monotonic() - self.since >= least:
            begin = time.monotonic()
            self._fetch_states()
            self.pending.servers = {name: (slot, trees.dump(server)) for name, (slot, server) in self.servers.items()}
            yield self.pending
            self.since, self.pending, self.servers = time.monotonic(), Commit(), {}
            self.saving = self.since - begin

    def _fetch_states(self) -> None:
        """Those of clients that exchange are with the workers."""
        members = self.pending.members
        away = [m for m, paused in members.items() if paused.state is None and paused.slot < self.lengths[m]]
        if away:  # clients without an exchange may be at work just now
            for m, state in zip(away, self._at_home([{"step": "state", "member": m} for m in away]), strict=True):
                members[m] = members[m]._replace(state=state)
