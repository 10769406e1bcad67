"""The clients' side of a test: one adapter per process, moved from client to client by loading states.

Where clients exchange, a process keeps the states of the clients at home in it, since a state can be as large as a
model: it leaves the process only to be saved. Labels stay here: an adapter is handed images and returns logits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from acclimate import trees
from acclimate.contracts import Adapter, Knowledge, Upload
from acclimate.engine.live import Live
from acclimate.engine.seeds import seed_call
from acclimate.models.head import signature
from acclimate.options import Count
from acclimate.scenarios.population import Population, Slot, Stream
from acclimate.trees import Parcel


@dataclass(frozen=True)
class Test:
    """How streams are met: a property of the test, not of the adapter."""

    __test__ = False  # not a test case, whatever pytest thinks of the name

    batch_size: Count | Literal["all"] = 20  # all: one slot with everything, for offline methods
    reset: Literal["never", "batch", "shift"] = "never"  # shift: the adapter is told the boundaries
    sync_every: Count = 1  # slots between exchanges, where there is an aggregator
    validation: bool = False  # source clients' validation parts are one more stream, unlabelled like every other


class Score(NamedTuple):
    """What one slot of one stream measured; slot -1: the whole stream."""

    client: int
    stream: str
    slot: int
    shift: str
    values: dict[str, float]


class Paused(NamedTuple):
    """Where a client stands in its stream."""

    slot: int  # the next one
    state: Parcel | None  # the adapter's; None at the start, at the end, and while a worker keeps it
    tally: list[list[int]]  # correct and seen images of each class


@dataclass(frozen=True)
class Testing:
    """What a worker needs to know of a test."""

    make: Callable[..., Adapter]  # (net, **knowledge) → adapter
    needs: tuple[str, ...]
    population: Population
    streams: Sequence[Stream]
    build: Callable[[int | None], nn.Module]
    test: Test
    seed: int
    known: bytes | None  # what every client knows; None: it differs from client to client
    signs: bool = False
    _live: Live = field(init=False)
    _source: Live = field(init=False)
    _adapter: dict[str, tuple[Adapter, Parcel, nn.Module | None]] = field(init=False)
    _states: dict[int, Parcel] = field(init=False)  # of members at home in this process
    _slots: dict[int, list[Slot]] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_live", Live(self.build))
        object.__setattr__(self, "_source", Live(self.build))
        object.__setattr__(self, "_adapter", {})
        object.__setattr__(self, "_states", {})
        object.__setattr__(self, "_slots", {})

    def __reduce__(self) -> tuple[Any, ...]:
        values = (self.make, self.needs, self.population, self.streams, self.build, self.test, self.seed)
        return type(self), (*values, self.known, self.signs)

    def prepare(self, common: bytes) -> None:
        return None

    def run(self, prepared: None, task: dict[str, Any]) -> Any:
        steps = {
            "alone": self.alone,
            "start": self.start,
            "resume": self.resume,
            "adapt": self.adapt,
            "predict": self.predict,
            "state": self.state,
        }
        return steps[task["step"]](task)

    def alone(self, task: dict[str, Any]) -> tuple[Paused, list[Score], list[tuple[int, bytes]]]:
        """A client's stream from where it stands, until its end or until the time for one piece is over."""
        adapter, first, _ = self._for(task)
        stream, paused = self.streams[task["member"]], task["paused"]
        slots, begin = self._slots_of(task["member"]), time.monotonic()
        adapter.load_state((paused.state or first).open())
        tally, scores, figures, t = [list(row) for row in paused.tally], [], [], paused.slot
        while t < len(slots) and (t == paused.slot or time.monotonic() - begin < task["seconds"]):
            if self._resets(slots, t):
                adapter.load_state(first.open())
            x, y = self._batch(slots[t])
            logits, seconds = self._call(adapter, "forward", stream, t, x)
            values = _judge(logits, y, tally)
            scores.append(Score(stream.client, stream.name, t, slots[t].shift, {**values, "seconds": seconds}))
            if drawn := _drawn(adapter):
                figures.append((t, drawn))
            t += 1
        state = Parcel(adapter.state()) if t < len(slots) else None
        return Paused(t, state, tally), scores, figures

    def start(self, task: dict[str, Any]) -> Parcel:
        """A client's stream begins; what it would share before any adaptation."""
        adapter, first, _ = self._for(task)
        adapter.load_state(first.open())
        self._states[task["member"]] = first
        return Parcel(self._upload(adapter, task, None, 0))

    def resume(self, task: dict[str, Any]) -> None:
        """A client's stream goes on from a saved state."""
        self._states[task["member"]] = task["state"]

    def adapt(self, task: dict[str, Any]) -> tuple[Parcel | None, float, bytes | None]:
        """The first half of an exchange: the upload after adapting; none, and nothing adapted, if it is not finite."""
        adapter, first, source = self._for(task)
        member, t = task["member"], task["slot"]
        slots = self._slots_of(member)
        if self._resets(slots, t):
            self._states[member] = first
        adapter.load_state(self._states[member].open())
        x, _ = self._batch(slots[t])
        _, seconds = self._call(adapter, "adapt", self.streams[member], t, x)
        upload = self._upload(adapter, task, signature(source, x) if source is not None else None, len(x))
        if not trees.finite(upload):
            return None, seconds, None
        self._states[member] = Parcel(adapter.state())
        return Parcel(upload), seconds, _drawn(adapter)

    def predict(self, task: dict[str, Any]) -> tuple[Score, list[list[int]]]:
        """The second half: take the download, predict the same batch."""
        adapter, _, _ = self._for(task)
        member, t = task["member"], task["slot"]
        stream, slots = self.streams[member], self._slots_of(member)
        adapter.load_state(self._states.pop(member).open())
        if task["download"] is not None:
            adapter.load_shared(task["download"].open())
        x, y = self._batch(slots[t])
        logits, seconds = self._call(adapter, "predict", stream, t, x)
        if t + 1 < len(slots):
            self._states[member] = Parcel(adapter.state())
        tally = [list(row) for row in task["tally"]]
        values = {**_judge(logits, y, tally), "seconds": seconds}
        return Score(stream.client, stream.name, t, slots[t].shift, values), tally

    def state(self, task: dict[str, Any]) -> Parcel:
        """A client's state, to be saved."""
        return self._states[task["member"]]

    def _for(self, task: Mapping[str, Any]) -> tuple[Adapter, Parcel, nn.Module | None]:
        """The adapter with its first state: one per process, or a new one where clients know different things."""
        known = task["known"]
        if known is not None or "shared" not in self._adapter:
            knowledge: Knowledge = trees.load(known if known is not None else self.known or b"")
            client = None if known is None else self.streams[task["member"]].client
            net, source = self._live(knowledge["model"], client), None
            if self.signs:
                source = self._source(knowledge["model"], client).requires_grad_(False).eval()
            seed_call(self.seed, "test", "make")
            adapter = self.make(net, **{name: knowledge[name] for name in self.needs})
            made = (adapter, Parcel(adapter.state()), source)
            if known is not None:
                return made
            self._adapter["shared"] = made
        return self._adapter["shared"]

    def _call(self, adapter: Adapter, what: str, stream: Stream, t: int, x: Tensor) -> tuple[Tensor, float]:
        adapter.figures = {}
        seed_call(self.seed, "test", t, stream.client, stream.name, what)
        begin = time.perf_counter()
        result = getattr(adapter, what)(x)
        return result, time.perf_counter() - begin

    def _batch(self, slot: Slot) -> tuple[Tensor, Tensor]:
        parts = [self.population.examples(held) for held in slot.parts]
        return torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts])

    def _slots_of(self, member: int) -> list[Slot]:
        """A stream cut into batches, once per process."""
        if member not in self._slots:
            self._slots[member] = self.streams[member].slots(self.test.batch_size)
        return self._slots[member]

    def _resets(self, slots: Sequence[Slot], t: int) -> bool:
        if self.test.reset == "shift":
            return t > 0 and slots[t].shift != slots[t - 1].shift
        return self.test.reset == "batch"

    def _upload(self, adapter: Adapter, task: Mapping[str, Any], sign: Tensor | None, weight: int) -> Upload:
        client = self.streams[task["member"]].client
        return Upload(client, task["slot"], adapter.shared(), sign, weight)


def _drawn(adapter: Adapter) -> bytes | None:
    return trees.dump(adapter.figures) if adapter.figures else None


def _judge(logits: Tensor, y: Tensor, tally: list[list[int]]) -> dict[str, float]:
    """Score predictions; one that is not a number is wrong, one without a label (-1) does not count."""
    known = y >= 0
    hit = (logits.argmax(-1) == y) & ~logits.isnan().any(-1) & known
    for label, right in zip(y[known].tolist(), hit[known].tolist(), strict=True):
        tally[0][label] += int(right)
        tally[1][label] += 1
    return {"correct": float(hit.sum()), "count": float(known.sum())}
