"""The server's side of a test: every client's stream, alone or with exchanges, saved in pieces that can be resumed.

With an aggregator there is one message to a client for each exchange: take the download, predict, go on, adapt, upload.
What a client has adapted ahead is not saved: whoever resumes does it again from the state after the last prediction.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from acclimate import params, trees
from acclimate.contracts import AdapterRecipe, Aggregator, Upload
from acclimate.engine.door import Door, opened, told
from acclimate.engine.exchange import Exchanging, bounded, keep, kept_every
from acclimate.engine.executor import Executor, one_thread
from acclimate.engine.known import Known, Own
from acclimate.engine.live import Build, Extending, Live
from acclimate.engine.messages import Alone, Begin, Figure, GoOn, Lost, Paused, Save, Score, Stretch, Test
from acclimate.engine.roster import Member, Roster
from acclimate.engine.seeds import seed_call
from acclimate.engine.tester import Trial
from acclimate.engine.train import Progress
from acclimate.errors import ConfigError, MissingKnowledge, WorkerFailed, WorkerLost
from acclimate.models.head import signature
from acclimate.params import Params
from acclimate.scenarios.availability import AWAY, HERE, LATE
from acclimate.trees import Parcel, Shared

__all__ = ["Commit", "Figure", "Paused", "Resume", "Score", "Test", "check_knowledge", "evaluate"]

MOST_SAVING = 0.04  # of the time of a test: everybody's state may be large
NOTHING_OF_ITS_OWN = "no answer of its counted in training, so that it has no model of its own"
MOST_LOSSES = 3  # of workers, without anything saved in between; of one client's answers, one after another


@dataclass
class Commit:
    """What happened since the last commit: to be saved as a whole."""

    scores: list[Score] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    members: dict[int, Paused] = field(default_factory=dict)  # number of the member → where it stands
    servers: dict[str, tuple[int, bytes]] = field(default_factory=dict)  # stream → next exchange, aggregator state


Resume = Commit  # the newest members and servers of all commits so far


def evaluate(
    recipe: AdapterRecipe,
    roster: Roster,
    build: Build,
    known: Known,
    *,
    executor: Executor,
    aggregator: Aggregator[Any] | None = None,
    test: Test | None = None,
    seed: int = 0,
    resume: Resume | None = None,
    commit_seconds: float = 10.0,
    progress: Progress | None = None,
) -> Iterator[Commit]:
    """Adapt and score an adapter on every stream of a roster.

    Yields what to save about every `commit_seconds`, less often where saving takes more than 4 % of the time, and
    after every piece of work if it is 0; where it was saved up to goes into `resume` after an interruption.
    """
    without = check_knowledge(known, recipe.needs, [member.client for member in roster.members])
    trial = Trial(
        recipe=recipe,
        members=tuple((member.client, member.stream) for member in roster.members),
        build=build,
        test=test or Test(),
        seed=seed,
        exports=known.exports,
        signs=aggregator is not None and aggregator.signs,
    )
    run = _Run(trial, roster, known, executor, commit_seconds, resume or Commit(), progress, without)
    with one_thread():
        executor.install(trial)
        yield from run.alone() if aggregator is None else run.together(aggregator)


def check_knowledge(known: Known, needs: Sequence[str], clients: Sequence[int]) -> set[int]:
    """Name what is missing, and for whom, before the first batch.

    Returns the clients that must be left out, since they have nothing of their own through a fault of theirs.
    """
    wanted = ("model", *needs)
    phases = ", ".join(type(outcome.algorithm).__name__ for outcome in known.outcomes) or "none"
    for name in wanted:
        if name not in known.names:
            raise MissingKnowledge(
                f"'{name}' is exported by no phase (phases: {phases}); add one that exports it before the test"
            )
    without = set[int]()
    for client in dict.fromkeys(clients) if known.personal & set(wanted) else ():
        for name in known.lacks(client, wanted):
            if known.unheard(client):
                without.add(client)
                continue
            raise MissingKnowledge(
                f"client {client} has no '{name}': the phases ({phases}) keep part of it on the clients that "
                "took part, and this one never did. Test clients that trained (in scenario 'twofold': "
                "new: false; and cohort: all), or use phases that export to everybody or welcome newcomers"
            )
    return without


@dataclass
class _Run:
    trial: Trial
    roster: Roster
    known: Known
    executor: Executor
    commit_seconds: float
    saved: Resume  # where everything stands that was handed over to be saved
    progress: Progress | None
    without: set[int]  # clients that cannot be tested

    def __post_init__(self) -> None:
        position: dict[str, Iterator[int]] = defaultdict(count)
        # Clients of one stream work side by side.
        self.homes = [next(position[member.stream]) for member in self.roster.members]
        self.since, self.saving, self.losses = time.monotonic(), 0.0, 0
        streams: dict[str, list[Member]] = defaultdict(list)
        for member in self.roster.members:
            streams[member.stream].append(member)
        self.drawn_every = {name: kept_every(of, self.trial.test.sync_every) for name, of in streams.items()}
        self.turned_away: dict[int, str] = {}  # clients whose last bad upload was set aside, and why
        # Members that do not answer: how often in a row, and why.
        self.lost: dict[int, tuple[int, str]] = {
            m: (MOST_LOSSES + 1, NOTHING_OF_ITS_OWN)
            for m, member in enumerate(self.roster.members)
            if member.client in self.without
        }
        self._go_back()

    def _go_back(self) -> None:
        """To what was saved last."""
        self.pending = Commit()
        self.unbegun: set[int] = set()  # members that have not answered the first message of this sitting
        self.servers: dict[str, tuple[int, Exchanging]] = {}  # since the last commit
        self.at = {m: self.saved.members[m].slot if m in self.saved.members else 0 for m in self._everybody()}
        self.ended = {m for m, paused in self.saved.members.items() if paused.slot > 0 and paused.state is None}

    def _everybody(self) -> range:
        return range(len(self.roster.members))

    def alone(self) -> Iterator[Commit]:
        """Without an aggregator clients are independent: each runs as far as the time for one piece allows."""
        place = dict(self.saved.members)
        while ahead := [m for m in self._everybody() if m not in self.ended and not self._given_up(m)]:
            tasks = ([Alone(m, place.get(m), self.commit_seconds, self._own(m))] for m in ahead)
            for index, stretch in self.executor.run(tasks):
                member = ahead[index]
                if isinstance(stretch, Lost):
                    self._missed(member, stretch)
                else:
                    place[member] = self.pending.members[member] = stretch.paused
                    self._heard(member, stretch)
                yield from self._due(min(1.0, self.commit_seconds))
        self._need_somebody(self._everybody())
        yield from self._due(0.0)

    def together(self, aggregator: Aggregator[Any]) -> Iterator[Commit]:
        """With an aggregator all clients of a stream meet at every exchange."""
        self.door = self._door()
        while True:
            try:
                for name in self.roster.names():
                    yield from self._stream(aggregator, name)
                yield from self._due(0.0)
                return
            except WorkerLost as lost:  # from what was saved last, be it in an earlier stream
                self.losses += 1
                if self.losses > MOST_LOSSES:
                    raise WorkerFailed(f"{lost}; it happened {self.losses} times in a row") from lost
                self._go_back()

    def _stream(self, aggregator: Aggregator[Any], name: str) -> Iterator[Commit]:
        every = self.trial.test.sync_every
        members = [m for m in self._everybody() if self.roster.members[m].stream == name]
        if self.ended.issuperset(members) and name not in self.saved.servers:
            return  # its streams were too short for an exchange
        presence = self._presence(members)
        t, server, waiting = self._begin(aggregator, name, members, presence)
        while any(not self._given_up(m) for m in waiting) or (not waiting and self._more(members, t)):
            now = {m: upload for m, (slot, upload) in waiting.items() if slot == t}
            server, downloads, traffic = self._exchange(aggregator, server, name, now, presence, t)
            tasks = [self._following(m, downloads.get(m), self._stop(presence[m], t + every)) for m in now]
            for m, stretch in self._at_home(tasks).items():
                if isinstance(stretch, Lost):  # it is asked again at the next exchange, with nothing to take
                    self._missed(m, stretch)
                    waiting[m] = (t + every, None)
                    continue
                del waiting[m]
                self._arrived(m, stretch, presence, waiting, {t: traffic[m]})
            t += every
            self.servers[name] = (t, server)
            yield from self._due(self.commit_seconds)  # everybody's state: too much to save for every slot

    def _following(self, member: int, download: Parcel | None, stop: int | None) -> Begin | GoOn:
        """A client's next task; one that could not even begin is asked to once more."""
        if member in self.unbegun:
            return Begin(member, self.saved.members.get(member), stop, self._own(member))
        return GoOn(member, download, stop)

    def _more(self, members: Sequence[int], t: int) -> bool:
        """Whether a slot `t` is still to come for somebody, though nobody waits: all are absent."""
        return any(t < (self.roster.members[m].slots or 0) for m in members)

    def _begin(
        self,
        aggregator: Aggregator[Any],
        name: str,
        members: Sequence[int],
        presence: dict[int, NDArray[np.int64] | None],
    ) -> tuple[int, Exchanging, dict[int, tuple[int, Parcel | None]]]:
        """The first exchange to come, the server before it, and who waits for which with what."""
        t = self.trial.test.sync_every - 1
        if name in self.saved.servers:
            t, blob = self.saved.servers[name]
        tasks = []
        for m in members:
            if m not in self.ended and not self._given_up(m):
                paused = self.saved.members.get(m)
                stop = self._stop(presence[m], t if paused is None else self._next_exchange(paused.slot))
                tasks.append(Begin(m, paused, stop, self._own(m)))
        waiting: dict[int, tuple[int, Parcel | None]] = {}
        starts: list[Upload] = []
        for m, stretch in self._at_home(tasks).items():
            if isinstance(stretch, Lost):
                self._missed(m, stretch)
                self.unbegun.add(m)
                waiting[m] = (t, None)
                continue
            starts += [] if stretch.start is None else [opened(stretch.start)]
            self._arrived(m, stretch, presence, waiting, {})
        self._need_somebody(members)
        if name in self.saved.servers:
            return t, trees.load(blob), waiting
        starts = self.door.starts(starts)
        if starts and not any(upload.params for upload in starts):
            raise ConfigError(
                [f"aggregator {type(aggregator).__name__}: this adapter shares nothing, so there is nothing to mix; "
                 "use it without an aggregator, or another adapter (bn-adapt, tent, em, bbse)"], "a system",
            )  # fmt: skip
        seed_call(self.trial.seed, "test", name, "init")
        return t, Exchanging(trees.transform(params.copy, aggregator.init(starts)), {}), waiting

    def _exchange(
        self,
        aggregator: Aggregator[Any],
        server: Exchanging,
        name: str,
        now: dict[int, Parcel | None],
        presence: dict[int, NDArray[np.int64] | None],
        t: int,
    ) -> tuple[Exchanging, dict[int, Parcel], dict[int, dict[str, float]]]:
        """One exchange: the server after it, the downloads, and what they and the uploads cost."""
        # Beyond the end of its stream only somebody waits whose answers were lost.
        times = {m: presence[m] for m in now}
        when = {m: HERE if table is None or t >= len(table) else int(table[t]) for m, table in times.items()}
        uploads = {m: opened(parcel) for m, parcel in now.items() if parcel is not None}
        faults = self.door.faults(uploads, {m: (self.roster.members[m].client, t) for m in uploads})
        sound: dict[int, Upload] = {m: upload for m, upload in uploads.items() if m not in faults}
        sent, late = ({m: u for m, u in sound.items() if when[m] == kind} for kind in (HERE, LATE))
        server, mixed = self._mix(aggregator, server, name, sent, late, t)
        traffic: dict[int, dict[str, float]] = {m: {} if when[m] == HERE else {"missed": 1.0} for m in now}
        for m in (*faults, *(m for m in sent if m not in mixed)):
            traffic[m]["left_out"] = 1.0
        self.turned_away |= {self.roster.members[m].client: why for m, why in faults.items()}
        for m, upload in sound.items():
            traffic[m]["bytes_up"] = trees.nbytes(upload.params) + trees.nbytes(upload.signature)
        parcels = {id(download): Shared(download) for download in mixed.values()}  # many may get the same object
        for m, download in mixed.items():
            traffic[m]["bytes_down"] = trees.nbytes(download)
        return server, {m: parcels[id(download)] for m, download in mixed.items()}, traffic

    def _mix(
        self,
        aggregator: Aggregator[Any],
        server: Exchanging,
        name: str,
        sent: dict[int, Upload],
        late: dict[int, Upload],
        t: int,
    ) -> tuple[Exchanging, dict[int, Params]]:
        availability = self.roster.availability
        seed_call(self.trial.seed, "test", name, t, "mix")
        mix = aggregator.mix(server.state, [*sent.values(), *server.absent(sent, t)], t)
        if mix.figures and (t + 1) // self.trial.test.sync_every % self.drawn_every[name] == 0:
            self.pending.figures.append(Figure(-1, name, t, trees.dump(bounded(mix.figures))))
        kept = server.kept
        if aggregator.remembers and not availability.full:
            kept = keep(kept, sent, late, t, availability.delay)
        mixed = {m: download for m, download in zip(sent, mix.downloads, strict=True) if download is not None}
        good = {id(download): trees.finite(download) for download in mixed.values()}  # many may get the same object
        state = mix.state if all(good.values()) else server.state  # what made them may be spoilt too
        # Contiguous copies: what goes on has the same bits and layout as what is saved.
        server = Exchanging(trees.transform(params.copy, state), kept)
        return server, {m: download for m, download in mixed.items() if good[id(download)]}

    def _arrived(
        self,
        member: int,
        stretch: Stretch,
        presence: dict[int, NDArray[np.int64] | None],
        waiting: dict[int, tuple[int, Parcel | None]],
        traffic: dict[int, dict[str, float]],
    ) -> None:
        """Note what a client has done, with what its exchange cost, and that it waits for the next."""
        times, every = presence[member], self.trial.test.sync_every
        scores = []
        for score in stretch.scores:
            extra = traffic.get(score.slot, {})
            if score.slot >= 0 and (score.slot + 1) % every == 0 and times is not None and times[score.slot] == AWAY:
                extra = {"missed": 1.0}
            scores.append(score._replace(values={**score.values, **extra}))
        if stretch.paused is not None:
            self.pending.members[member] = stretch.paused
        else:
            waiting[member] = (stretch.slot, stretch.upload)
            self.pending.members.setdefault(member, Paused(stretch.slot, None, []))  # its state is fetched when due
        self._heard(member, stretch._replace(scores=scores))

    def _missed(self, member: int, lost: Lost) -> None:
        """Note that a client did not answer."""
        self.lost[member] = (self.lost.get(member, (0, ""))[0] + 1, lost.reason)

    def _given_up(self, member: int) -> bool:
        """Whether nobody waits for a client any more; it may still come back while others go on."""
        return self.lost.get(member, (0, ""))[0] > MOST_LOSSES

    def _need_somebody(self, members: Sequence[int]) -> None:
        """A test that no client of a stream has answered says why."""
        if members and all(m in self.lost and not self.at[m] for m in members):
            why = told({self.roster.members[m].client: self.lost[m][1] for m in members})
            raise WorkerFailed(f"no client has answered: {why}; what was finished is saved: mend that, then run again")

    def _heard(self, member: int, stretch: Stretch) -> None:
        self.lost.pop(member, None)
        self.unbegun.discard(member)
        self.pending.scores += stretch.scores
        self.pending.figures += stretch.figures
        self.at[member] = stretch.slot
        if stretch.ended:
            self.ended.add(member)

    def _door(self) -> Door:
        """Made of the adapter as some client has it, whose own part the server knows."""
        trial, of = self.trial, self.roster
        most = math.inf if trial.test.batch_size == "all" else float(trial.test.batch_size)
        extended = Extending(trial.build, tuple(phase.algorithm for phase in trial.exports.phases))
        for client in dict.fromkeys(member.client for member in of.members):
            known = self.known.of(client)
            if known.keys() >= {"model", *trial.recipe.needs}:
                net = Live(extended)(known["model"], client).eval()
                sign = signature(net, torch.zeros(1, *of.shape)) if trial.signs else None
                seed_call(trial.seed, "test", "make")
                adapter = trial.recipe(net, **{name: known[name] for name in trial.recipe.needs})
                return Door.of(adapter, of.classes, sign, most)
        return Door(most)

    def _presence(self, members: Sequence[int]) -> dict[int, NDArray[np.int64] | None]:
        """Who exchanges when; None: whoever answers is there."""
        table, seed, of = self.roster.availability.table, self.trial.seed, self.roster.members
        return {
            m: None if slots is None else table(seed, of[m].client, position, slots)
            for position, m in enumerate(members)
            for slots in [of[m].slots]
        }

    def _next_exchange(self, slot: int) -> int:
        """The first exchange at or after a slot: exchanges are in the slots every-1, 2·every-1, ..."""
        every = self.trial.test.sync_every
        return (slot // every + 1) * every - 1

    def _stop(self, times: NDArray[np.int64] | None, slot: int) -> int | None:
        """The first exchange at or after this one in which a client takes part, if only with a late upload."""
        if times is None:
            return slot
        return next((t for t in range(slot, len(times), self.trial.test.sync_every) if times[t] != AWAY), None)

    def _own(self, member: int) -> tuple[Own, ...]:
        return self.known.own(self.roster.members[member].client)

    def _at_home(self, tasks: Sequence[Begin | GoOn | Save]) -> dict[int, Any]:
        """Results of tasks by member, each done by the worker that keeps the state of its client."""
        homes = [self.homes[task.member] for task in tasks]
        results = dict(self.executor.run([[task] for task in tasks], homes, len(tasks)))
        return {task.member: results[index] for index, task in enumerate(tasks)}

    def _due(self, seconds: float) -> Iterator[Commit]:
        """Hand over what is pending, if the last time was so many seconds ago; later where saving itself takes long."""
        if self.progress is not None:
            lost = {self.roster.members[m].client: why for m, (_, why) in self.lost.items()}
            parts = {"set aside": self.turned_away, "never answered": lost}
            text = "; ".join(f"{what}: {told(who)}" for what, who in parts.items() if who)
            self.progress(sum(self.at.values()), sum(member.slots or 0 for member in self.roster.members), text)
        least = max(seconds, self.saving / MOST_SAVING) if seconds else 0.0
        if self.pending.members and time.monotonic() - self.since >= least:
            begin = time.monotonic()
            self._fetch_states()
            self.pending.servers = {name: (slot, trees.dump(server)) for name, (slot, server) in self.servers.items()}
            self.saved.members.update(self.pending.members)
            self.saved.servers.update(self.pending.servers)
            yield self.pending
            self.since, self.pending, self.servers, self.losses = time.monotonic(), Commit(), {}, 0
            self.saving = self.since - begin

    def _fetch_states(self) -> None:
        """Those of clients that exchange are with the workers."""
        members = self.pending.members
        away = [m for m, paused in members.items() if paused.state is None and m not in self.ended]
        for m, paused in self._at_home([Save(m) for m in away]).items():
            if isinstance(paused, Lost):
                del members[m]
            else:
                members[m] = paused
