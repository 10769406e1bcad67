"""Clients in a phase: what each does in a round, by a worker process for many, or by a device for itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import torch

from acclimate import trees
from acclimate.contracts import Algorithm, Client, Replies, Task
from acclimate.engine.client import Clients
from acclimate.engine.door import reply_fault
from acclimate.engine.known import Exports
from acclimate.engine.live import Build, Extending, Live
from acclimate.engine.messages import Folded, Lost, Part, Took
from acclimate.engine.notes import Notes
from acclimate.engine.seeds import generator, seed_call
from acclimate.scenarios.population import Population
from acclimate.trees import Form, Parcel, Shared


class _Asked(NamedTuple):
    """What is to be known of a message."""

    message: Shared
    bytes: int
    form: Form  # of honest replies


@dataclass(frozen=True)
class Training:
    """What clients need to know of a phase."""

    algorithm: Algorithm[Any, Any]
    build: Build
    seed: int
    position: int
    source: tuple[int, ...]
    exports: Exports = field(default_factory=Exports)

    def open(self, clients: Clients) -> Trainee:
        return Trainee(self, clients.people, clients.secret)

    def task(self, classes: int, shape: tuple[int, int, int]) -> Task:
        """The problem, as the server and the clients see it."""
        return Task(classes, shape, self.source, self.extended(), self.exports.shared())

    def extended(self) -> Extending:
        """The recipe of the model, with what phases add to it."""
        return Extending(self.build, (*(phase.algorithm for phase in self.exports.phases), self.algorithm))


class Trainee:
    """Clients in a phase."""

    def __init__(self, training: Training, people: Population, secret: str = "") -> None:
        self.training, self.people, self.secret = training, people, secret
        self.live = Live(training.extended())
        task = training.task(people.classes, people.shape)
        self.task = Task(**{**vars(task), "public": people.unlabelled()})
        self.notes = Notes()
        self._asked = _Asked(Shared(None), 0, Form(None))

    def do(self, part: Part) -> Took:
        """One client's round."""
        algorithm, place = self.training.algorithm, (self.training.seed, self.training.position, part.round, part.id)
        client = self._client(part, generator(*place, "batches"), self._hiding(part, place))
        message = part.message.read()
        if part.state is None:
            seed_call(*place, "client_init")
            before = algorithm.client_init(client)
        else:
            before = part.state.open()
        seed_call(*place, "client_update")
        reply, after = algorithm.client_update(message, before, client)
        self.notes.count(part.id)
        if part.id in self.people.liars:
            known = algorithm.expects(message, self.task)
            reply = reply._replace(update=self.people.hostile.lie(reply.update, known, *place[:3]))
        state = None if after is None else Parcel(after)
        return Took(reply, state, self._known(part.message).bytes, trees.nbytes(reply.update))

    def fold(self, results: Iterable[tuple[Part, Took | Lost]]) -> Folded:
        """Replies as they come, into one sum."""
        folded = Folded(Replies(self.training.algorithm.keeps), {}, {}, {})
        for part, took in results:
            if isinstance(took, Lost):
                folded.replies.lost[part.id] = took.reason
                continue
            folded.traffic[part.id] = (took.bytes_down, took.bytes_up)
            if fault := reply_fault(self._known(part.message).form, took.reply):
                folded.refused[part.id], folded.replies.metrics[part.id] = fault, {}
                folded.replies.left_out.append(part.id)
                continue
            folded.replies.add(part.id, took.reply)
            if part.id not in folded.replies.left_out and took.state is not None:
                folded.states[part.id] = took.state
        return folded

    def _hiding(self, part: Part, place: tuple[int, ...]) -> torch.Generator:
        """What draws noise.

        With a secret it depends on all that decides the reply: the same reply is hidden in the same way, and no two
        others are, or their difference would be free of noise.
        """
        decides = [one.seal() for one in (part.message, part.state) if one is not None] if self.secret else []
        digests = [hashlib.blake2b(blob, digest_size=16).hexdigest() for blob in decides]
        return generator(*place, "secret", self.secret, *digests)

    def _known(self, message: Shared) -> _Asked:
        """What is to be known of a message; the same one serves many."""
        if message is not self._asked.message:
            read = message.read()
            self._asked = _Asked(message, trees.nbytes(read), Form(self.training.algorithm.expects(read, self.task)))
        return self._asked

    def _client(self, part: Part, rng: torch.Generator, secret: torch.Generator) -> Client:
        train, validation = map(self.people.examples, self.people.source[part.id])
        train = replace(train, augment=self.people.augment)
        if part.id in self.people.liars and self.people.hostile.attack == "labels":
            train = replace(train, labels=self.task.classes - 1 - train.labels)
        known = self.task.known
        if part.own:
            states = {one.phase: one.state.open() for one in part.own if one.state is not None}
            known = self.training.exports.of(part.id, part.own, states)
        return Client(
            id=part.id,
            train=train,
            validation=validation,
            task=self.task,
            net=partial(self.live, client=part.id),
            rng=rng,
            known=known,
            notes=self.notes.of(part.id),
            secret=secret,
        )
