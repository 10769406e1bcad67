"""A node: answers letters for its clients, as a worker process does for those of a run on one machine.

The experiment comes once, as text, and is read with the plug-ins that the node's owner has listed; later letters name
places in it. States stay here (`kept.py`): the server gets their digests. Every letter may meet a new process, so that
nothing is remembered but what is kept; experiments and populations are, where a process lives on.
"""

from __future__ import annotations

import os
import re
import secrets
import traceback
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from acclimate import trees
from acclimate.data.folders import write_whole
from acclimate.engine.client import Clients
from acclimate.engine.executor import one_thread
from acclimate.engine.known import Elsewhere, Own
from acclimate.engine.messages import Alone, Begin, GoOn, Lost, Part, Standing, Stretch, Took
from acclimate.engine.tester import Tester
from acclimate.engine.trainee import Trainee, Training
from acclimate.errors import AcclimateError, ConfigError
from acclimate.experiment.lock import lock
from acclimate.experiment.outside import Listed
from acclimate.experiment.reader import parse
from acclimate.experiment.written import load as load_yaml
from acclimate.flower.answers import Answers
from acclimate.flower.codec import RECORDS, Letter, Missing, digest_of, pack, read, unpack, written
from acclimate.flower.executor import Answered, Asked
from acclimate.flower.kept import After, Kept
from acclimate.flower.places import OnNodes, Places, Scene
from acclimate.scenarios.nodes import Bound
from acclimate.trees import Parcel, Shared
from acclimate.version import __version__

TEXT = "experiment.yaml"
SECRET = "secret"


@dataclass
class Node:
    """A node with its folder, its part of a scenario's clients and the code that its owner allows."""

    folder: Path
    part: tuple[int, int] = (0, 1)  # the clients whose number leaves this remainder, by that many nodes
    allowed: Mapping[str, Any] = field(default_factory=dict)  # plug-ins by the name of their class
    data: Path | None = None  # images of its own
    name: str = ""  # what it is called then
    _read: dict[str, Places] = field(default_factory=dict)

    def answer(self, letter: Letter) -> Letter:
        """The answer to a letter; what goes wrong is told in it."""
        try:
            said = read(letter)
            with one_thread(), lock(self.folder / "lock", wait=lambda text: None):
                return self._greeted(said) if "text" in said else self._worked(said, letter.blobs)
        except AcclimateError as error:
            return Letter(written({"error": f"{type(error).__name__}: {error}"}), {})
        except Exception as error:
            traceback.print_exc()  # for the node's owner; the server is told no more than the last line
            return Letter(written({"error": f"{type(error).__name__}: {error}"}), {})

    def _greeted(self, said: Mapping[str, Any]) -> Letter:
        """Read the experiment, and say whom the node serves and what it has already."""
        if said["version"] != __version__:
            raise ConfigError(
                [f"the server runs acclimate {said['version']}, this node {__version__}; install the same on both"],
                "this node",
            )
        experiment = self._parsed(said["text"])
        if experiment.run_name != said["experiment"]:
            raise ConfigError(
                [f"the experiment reads as '{experiment.run_name}' here and as '{said['experiment']}' on the server; "
                 "install the same acclimate and the same plug-ins on both"], "this node",
            )  # fmt: skip
        folder = self._folder(said["experiment"])
        write_whole(folder / TEXT, lambda file: file.write(said["text"].encode()))
        serves: dict[str, Any] = {"part": list(self.part)}
        if experiment.own_data:
            serves = {"holder": list(self._bound(experiment, 0).holder(self.name))}
        with closing(Kept(folder / "node.sqlite")) as kept:
            return Letter(written({**serves, "has": kept.blobs()}), {})

    def _bound(self, experiment: OnNodes, id: int) -> Bound:
        """The scenario with the data of this node, which is client `id`."""
        if self.data is None or not self.name:
            raise ConfigError(
                ["the experiment meets images on nodes, and this one has none to offer: give its folder and a name, "
                 "--node-config 'data=\"/path/to/images\" name=\"north\"'"], "this node",
            )  # fmt: skip
        bound: Bound = experiment.scenario.made.on_node(self.data, id)
        return bound

    def _worked(self, said: Mapping[str, Any], blobs: Mapping[str, bytes]) -> Letter:
        places, scene = self._places(said["experiment"]), Scene(*said["scene"])
        with closing(Kept(self._folder(said["experiment"]) / "node.sqlite")) as kept:

            def blob_of(digest: str) -> bytes:
                found = blobs.get(digest) or kept.blob(digest)
                if found is None:
                    raise Missing(f"{digest[:8]} was sent before, and is not on this node")
                return found

            kept.keep_blobs((digest, blobs[digest]) for digest in said["keep"])
            told = trees.load(blob_of(said["work"]))
            experiment = places.experiment
            if experiment.own_data:
                experiment = experiment.bound(self._bound(experiment, int(said["client"])))
            trained, tested = experiment.populations(scene.seed)
            commons = tuple(Shared(blob_of(digest), lasting=True) for digest in told["commons"])
            work = places.rebuilt(told, trained, commons)
            # With the experiment and the place in it, so that no two trainings are hidden by the same noise.
            secret = f"{self._secret()} {said['experiment']} {said['work']}"
            clients = Clients(tested if scene.tested else trained, secret)
            asked = unpack(blobs[RECORDS], blob_of)
            if isinstance(work, Training):
                phase = places.phase(told)
                answered = _Rounds(kept, said["work"], work.open(clients), phase.keep_every if phase else None).do(
                    asked
                )
            else:
                answers = Answers(experiment, scene.seed, places.systems[told["adapter"][0]].name, self.name)
                answered = _Streams(kept, said["work"], work.open(clients), answers).do(asked)
        return Letter(written({}), {RECORDS: pack(answered, {})})

    def _secret(self) -> str:
        """What only this node knows: noise that hides replies cannot be drawn again by whoever sent the experiment.

        It is kept, so that a message that comes twice is answered twice in the same way.
        """
        file = self.folder / SECRET
        if not file.is_file():
            write_whole(file, _write_secret)
        return file.read_text(encoding="ascii")

    def _places(self, name: str) -> Places:
        if name not in self._read:
            file = self._folder(name) / TEXT
            if not file.is_file():
                raise ConfigError([f"no experiment '{name}' was sent to this node"], "this node")
            self._parsed(file.read_text(encoding="utf-8"))
        return self._read[name]

    def _parsed(self, text: str) -> OnNodes:
        """An experiment, with the plug-ins that the owner has listed and no others."""
        experiment = OnNodes.of(
            parse(load_yaml(text), source="the server's experiment", outside=Listed(allowed=dict(self.allowed)))
        )
        self._read.setdefault(experiment.run_name, Places(experiment))
        return experiment

    def _folder(self, name: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]*", name):
            raise ConfigError([f"expected the name of an experiment, found {name!r}"], "this node")
        return self.folder / name


@dataclass
class _Rounds:
    """Clients of this node in a round of a phase."""

    kept: Kept
    place: str
    trainee: Trainee
    keep_every: int | None

    def do(self, asked: Sequence[Asked]) -> list[Answered]:
        answered, after = [], []
        for part, _ in asked:
            try:
                took, states = self._one(part)
                answered.append(Answered(took))
                after += states
            except AcclimateError as error:
                answered.append(Answered(Lost(f"{type(error).__name__}: {error}")))
        self.kept.commit(self.place, after)
        return answered

    def _one(self, part: Part) -> tuple[Took, list[After]]:
        before = _digest(part.state)
        state = _resolved(self.kept, part.id, part.state)
        took = self.trainee.do(part._replace(state=state, own=_owned(self.kept, part.id, part.own)))
        if took.state is None:
            return took, []
        blob = took.state.seal()
        keep = bool(self.keep_every) and part.round % (self.keep_every or 1) == 0
        return took._replace(state=Parcel(Elsewhere(digest_of(blob)))), [
            After(part.id, before, digest_of(blob), blob, keep)
        ]


@dataclass
class _Streams:
    """Clients of this node in a test."""

    kept: Kept
    place: str
    tester: Tester
    answers: Answers

    def do(self, asked: Sequence[Asked]) -> list[Answered]:
        answered, after = [], []
        predicted: list[tuple[int, int, str, str]] = []
        trial = self.tester.trial
        for task, at in asked:
            try:
                stretch, states = self._one(task, at)
                client, stream = trial.members[int(task.member)]
                slots = self.tester.clients.slots(client, stream, trial.test.batch_size)
                figures, lines = self.answers.taken(stretch.figures, slots)
                stretch = stretch._replace(figures=figures)
                predicted += [(task.member, slot, self.answers.file, text) for slot, text in lines.items()]
                answered.append(Answered(stretch, states[0].digest if states else ""))
                after += states
            except AcclimateError as error:
                answered.append(Answered(Lost(f"{type(error).__name__}: {error}")))
        self.kept.commit(self.place, after, predicted)
        if predicted:
            self.answers.write(self.kept)
        return answered

    def _one(self, task: Alone | Begin | GoOn, at: str) -> tuple[Stretch, list[After]]:
        member, client = task.member, self.tester.trial.members[task.member][0]
        if isinstance(task, GoOn):
            own, before = self._own_again(member, client), at
            self.tester.stand(member, self._standing(member, at), own)
            stretch = self.tester.go_on(task)
        else:
            paused, before = task.paused, "" if task.paused is None else _digest(task.paused.state)
            if paused is not None and before:
                paused = self._standing(member, before).paused
            self.kept.begin(self.place, member, pack([(p, Parcel(r.seal()), s) for p, r, s in task.own], {}))
            done = self.tester.do(task._replace(paused=paused, own=_owned(self.kept, client, task.own)))
            assert isinstance(done, Stretch)
            stretch = done
        return self._left(member, before, stretch)

    def _left(self, member: int, before: str, stretch: Stretch) -> tuple[Stretch, list[After]]:
        """What leaves the node of a stretch, and what stays."""
        if stretch.paused is None:
            standing = self.tester.standing(member)
        elif stretch.paused.state is None:  # at its end: there is nothing to go on with
            return stretch._replace(paused=stretch.paused._replace(welcomed=None)), []
        else:
            standing = Standing(stretch.paused)
        blob = pack(standing, {})
        after = After(member, before, digest_of(blob), blob)
        if stretch.paused is not None:
            elsewhere = Parcel(Elsewhere(after.digest))
            stretch = stretch._replace(paused=stretch.paused._replace(state=elsewhere, welcomed=None))
        return stretch, [after]

    def _standing(self, member: int, digest: str) -> Standing:
        found: Standing = unpack(self.kept.state(member, digest), _nothing)
        return found

    def _own_again(self, member: int, client: int) -> tuple[Own, ...]:
        blob = self.kept.begun(self.place, member)
        noted = unpack(blob, _nothing) if blob else ()
        return _owned(self.kept, client, [Own(phase, Shared(r.seal()), state) for phase, r, state in noted])


def _write_secret(file: IO[bytes]) -> None:
    os.fchmod(file.fileno(), 0o600)  # before there is anything to read
    file.write(secrets.token_hex(32).encode())


def _digest(state: Parcel | None) -> str:
    """The digest of a state that is here; empty: it is none of those."""
    content = None if state is None else state.open()
    return content.digest if isinstance(content, Elsewhere) else ""


def _resolved(kept: Kept, who: int, state: Parcel | None) -> Parcel | None:
    """A client's state, from here where it stays here."""
    digest = _digest(state)
    return Parcel(kept.state(who, digest)) if digest else state


def _owned(kept: Kept, client: int, own: Sequence[Own]) -> tuple[Own, ...]:
    """What a client has of phases, with its states."""
    return tuple(one._replace(state=_resolved(kept, client, one.state)) for one in own)


def _nothing(digest: str) -> bytes:
    raise Missing(f"{digest[:8]} is not on this node")
