"""What finished phases leave behind: knowledge for everybody, and for each client its own.

The server holds states and decides what a client may have (`release`); what a client makes of it (`export`) is computed
where the client is, by `Exports`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from acclimate import trees
from acclimate.contracts import Algorithm, Knowledge
from acclimate.engine.checkpoint import Checkpoint
from acclimate.engine.seeds import seed_call
from acclimate.trees import Nest, Parcel, Shared, Skeleton


class Elsewhere(NamedTuple):
    """A state that stays on a client's own machine; all that the server has of it is its digest."""

    digest: str


class Own(NamedTuple):
    """What one client has of a phase whose exports are personal."""

    phase: int  # its position among all phases
    released: Shared
    state: Parcel | None  # None: the client never took part


class Finished(NamedTuple):
    """A phase that is over, as clients know it."""

    algorithm: Algorithm[Any, Any]
    seed: int
    position: int
    personal: tuple[str, ...]  # what it gives each client of its own; a later phase may have replaced some

    def export(self, released: Nest, state: Nest | None, client: int) -> Knowledge:
        """What a client makes of it."""
        seed_call(self.seed, self.position, "export", client)
        return self.algorithm.export(released, state, client)


@dataclass(frozen=True)
class Exports:
    """What clients need to know of all phases so far: the same for everybody, and small to send."""

    common: tuple[Shared, ...] = ()  # what everybody knows, by phase
    phases: tuple[Finished, ...] = ()

    def shared(self) -> Knowledge:
        """What everybody knows; later phases replace what earlier ones exported under the same name."""
        return {name: value for parcel in self.common for name, value in parcel.read().items()}

    def of(self, client: int, own: Sequence[Own], states: Mapping[int, Nest]) -> Knowledge:
        """What a client knows; `states` are those of its own phases."""
        known = self.shared()
        for phase, released, _ in own:
            finished = self.phases[phase]
            given = finished.export(released.read(), states.get(phase), client)
            known |= {name: given[name] for name in finished.personal if name in given}
        return known


@dataclass(frozen=True)
class Outcome:
    """A finished phase, on the server."""

    algorithm: Algorithm[Any, Any]
    checkpoint: Checkpoint
    round: int
    seed: int = 0
    position: int = 0
    anybody: int = 0  # one of the clients

    @cached_property
    def server(self) -> Nest:
        """The server's last state."""
        return trees.load(self.checkpoint.server(self.round))

    def released(self, client: int) -> Nest:
        """What a client may have."""
        seed_call(self.seed, self.position, "release", client)
        return self.algorithm.release(self.server, client)

    def state(self, client: int) -> Parcel | None:
        """What a client kept; None if it never took part."""
        blob = self.checkpoint.client(client, self.round)
        return None if blob is None else Parcel(blob)

    @cached_property
    def unheard(self) -> frozenset[int]:
        """Clients that were asked and have nothing of their own, since no answer of theirs counted."""
        asked = {client for _, client, name, _ in self.checkpoint.metrics() if name in ("lost", "left_out")}
        return frozenset(client for client in asked if self.state(client) is None)

    @cached_property
    def common(self) -> Shared:
        """What everybody takes from this phase."""
        names = [name for name in self.algorithm.exports if name not in self.algorithm.personal]
        given: Knowledge = {}
        if names:
            finished = Finished(self.algorithm, self.seed, self.position, ())
            given = finished.export(self.released(self.anybody), None, self.anybody)
        return Shared({name: given[name] for name in names if name in given}, lasting=True)


@dataclass(frozen=True)
class Known:
    """What all phases so far export, on the server; later phases replace what earlier ones exported under a name."""

    outcomes: Sequence[Outcome] = ()

    @cached_property
    def exports(self) -> Exports:
        """What clients need to know of it."""
        last = {name: i for i, outcome in enumerate(self.outcomes) for name in outcome.algorithm.exports}
        return Exports(
            tuple(outcome.common for outcome in self.outcomes),
            tuple(
                Finished(o.algorithm, o.seed, o.position, tuple(n for n in o.algorithm.personal if last[n] == i))
                for i, o in enumerate(self.outcomes)
            ),
        )

    @cached_property
    def _post(self) -> Post:
        return Post()

    @property
    def names(self) -> set[str]:
        """What is exported to anybody."""
        return {name for outcome in self.outcomes for name in outcome.algorithm.exports}

    @property
    def personal(self) -> set[str]:
        """What differs from client to client."""
        return {name for finished in self.exports.phases for name in finished.personal}

    def own(self, client: int) -> tuple[Own, ...]:
        """What a client is sent of phases whose exports are personal."""
        return tuple(
            Own(i, self._post.parcel(outcome.released(client)), outcome.state(client))
            for i, outcome in enumerate(self.outcomes)
            if self.exports.phases[i].personal
        )

    def of(self, client: int | None) -> Knowledge:
        """What a client knows as far as the server can tell: nobody welcomes it here, and states may be elsewhere.

        None: what everybody knows.
        """
        if client is None:
            return self.exports.shared()
        own = self.own(client)
        states = {one.phase: one.state.open() for one in own if one.state is not None}
        here = [one for one in own if not isinstance(states.get(one.phase), Elsewhere)]
        return self.exports.of(client, here, states)

    def sent(self, client: int, names: Sequence[str]) -> list[Nest]:
        """What a client is sent once to know these: what everybody knows, and what it is given of its own."""
        common = {name: value for name, value in self.of(None).items() if name in names and name not in self.personal}
        return [common, *(one.released.read() for one in self.own(client))]

    def keeps_elsewhere(self, client: int) -> bool:
        """Whether a client has something of its own that stays on its machine."""
        return any(one.state is not None and isinstance(one.state.open(), Elsewhere) for one in self.own(client))

    def unheard(self, client: int) -> bool:
        """Whether a client lacks something since no answer of its counted, and not since nobody asked it."""
        return any(client in outcome.unheard for outcome in self.outcomes if outcome.algorithm.personal)

    def lacks(self, client: int, names: Sequence[str]) -> list[str]:
        """Which of these a client cannot come to know."""
        missing = [name for name in names if name not in self.names]
        wanted = [name for name in names if name in self.personal]
        if wanted and any(one.state is None for one in self.own(client)):
            known = self.of(client)
            welcomed = {
                name
                for finished, outcome in zip(self.exports.phases, self.outcomes, strict=True)
                if outcome.algorithm.welcomes
                for name in finished.personal
            }
            missing += [name for name in wanted if name not in known and name not in welcomed]
        return missing


class Post:
    """Makes parcels of messages; one of the same tensors as the last is the same parcel, and so travels once."""

    def __init__(self) -> None:
        self._key: tuple[Skeleton, list[int]] | None = None
        self._last = Shared(None)

    def parcel(self, message: Nest) -> Shared:
        """The parcel of a message."""
        tensors, skeleton = trees.flatten(message)
        key = (skeleton, [id(tensor) for tensor in tensors])
        if key != self._key:
            self._key, self._last = key, Shared(message)  # holds the tensors, so that their ids stay theirs
        return self._last
