"""Clients in a test: each meets its stream, batch by batch. Labels stay here: an adapter is handed images only.

A process has one live model, and one adapter unless clients know different things; it is moved from client to client
by loading states. Where clients exchange, their states stay here, since a state can be as large as a model: they leave
only to be saved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate import params, trees
from acclimate.contracts import Adapter, AdapterRecipe, Newcomer, Task, Upload
from acclimate.engine.client import Clients
from acclimate.engine.known import Exports, Own
from acclimate.engine.live import Build, Extending, Live
from acclimate.engine.messages import Alone, Begin, Figure, GoOn, Paused, Save, Score, Standing, Stretch, Test
from acclimate.engine.seeds import seed_call
from acclimate.losses import entropy
from acclimate.models.head import signature
from acclimate.params import Params
from acclimate.scenarios.population import Slot
from acclimate.trees import Nest, Parcel


@dataclass(frozen=True)
class Trial:
    """What clients need to know of a test."""

    recipe: AdapterRecipe
    members: tuple[tuple[int, str], ...]  # client and name of each stream
    build: Build
    test: Test
    seed: int
    exports: Exports
    signs: bool = False  # whether uploads carry a signature

    def open(self, clients: Clients) -> Tester:
        return Tester(self, clients)


class _Made(NamedTuple):
    """An adapter with its first state."""

    adapter: Adapter
    first: Parcel
    source: nn.Module | None  # the frozen model that signs
    model: Params


@dataclass
class _Place:
    """Where a client stands, between two messages."""

    slot: int
    state: Parcel  # after the last prediction
    tally: list[list[int]]
    welcomed: Parcel | None
    ahead: Parcel | None = None  # after adapting to the slot whose exchange it waits for
    values: dict[str, float] = field(default_factory=dict)  # measured so far in that slot
    drawn: Figure | None = None  # in that slot
    figures: list[Figure] = field(default_factory=list)  # of slots predicted since the client was last asked


class Tester:
    """Clients in a test."""

    def __init__(self, trial: Trial, clients: Clients) -> None:
        self.trial, self.clients, people = trial, clients, clients.people
        extended = Extending(trial.build, tuple(phase.algorithm for phase in trial.exports.phases))
        self.live, self.source = Live(extended), Live(extended)
        self.task = Task(
            people.classes, people.shape, tuple(people.source), extended, trial.exports.shared(), people.unlabelled()
        )
        self._made: dict[int | None, _Made] = {}
        self._places: dict[int, _Place] = {}
        self._loaded: int | None = None  # whose model is in the live net, where they differ

    def do(self, task: Alone | Begin | GoOn | Save) -> Stretch | Paused:
        """What one message asks for."""
        match task:
            case Alone():
                return self.alone(task)
            case Begin():
                return self.begin(task)
            case GoOn():
                return self.go_on(task)
            case Save():
                return self.save(task)

    def fold(self, results: Iterable[tuple[Any, Any]]) -> Any:
        """A test has nothing to fold: the one result."""
        ((_, result),) = results
        return result

    def alone(self, task: Alone) -> Stretch:
        """A client's stream without an exchange."""
        place, scores, begin = self._arrive(task.member, task.paused, task.own), [], time.monotonic()
        made, slots, asked = self._adapter(task.member), self._slots_of(task.member), place.slot
        made.adapter.load_state(place.state.open())
        while place.slot < len(slots) and (place.slot == asked or time.monotonic() - begin < task.seconds):
            if self._resets(slots, place.slot):
                made.adapter.load_state(made.first.open())
            x, y = self._batch(slots[place.slot])
            logits, seconds = self._call(task.member, made.adapter, "forward", x)
            values = {"seconds": seconds, **self._draw(task.member, made.adapter, y)}
            scores.append(self._score(task.member, logits, y, values))
            place.slot += 1
        if place.slot < len(slots):
            place.state = Parcel(made.adapter.state())
        return self._stretch(task.member, scores)._replace(paused=self.leave(task.member))

    def begin(self, task: Begin) -> Stretch:
        """The start of a stream, or of what is left of it."""
        self._arrive(task.member, task.paused, task.own)
        start = None
        if task.paused is None:
            made = self._adapter(task.member)
            made.adapter.load_state(made.first.open())
            start = Parcel(self._upload(task.member, made.adapter, None, 0))
        return self._onward(task.member, task.stop, [])._replace(start=start)

    def go_on(self, task: GoOn) -> Stretch:
        """The second half of an exchange, and on to the first half of the next."""
        scores = [self._predict(task.member, task.download)]
        return self._onward(task.member, task.stop, scores)

    def save(self, task: Save) -> Paused:
        """Where a client stands after its last prediction; what it adapted ahead is done again by whoever resumes."""
        place = self._places[task.member]
        return Paused(place.slot, place.state, [list(row) for row in place.tally], place.welcomed)

    def standing(self, member: int) -> Standing:
        """Where a client stands, for another process to go on with."""
        place = self._places[member]
        return Standing(self.save(Save(member)), place.ahead, dict(place.values), place.drawn)

    def stand(self, member: int, standing: Standing, own: tuple[Own, ...]) -> None:
        """Put a client where it stood in another process."""
        place = self._arrive(member, standing.paused, own)
        place.ahead, place.values, place.drawn = standing.ahead, dict(standing.values), standing.drawn

    def leave(self, member: int) -> Paused:
        """Where a client stands that goes on elsewhere, or is at its end and needs no state any more."""
        paused = self.save(Save(member))
        self._made.pop(member, None)
        del self._places[member]
        return paused._replace(state=None) if paused.slot == len(self._slots_of(member)) else paused

    def _onward(self, member: int, stop: int | None, scores: list[Score]) -> Stretch:
        """Slots without an exchange, each adapted to and predicted, then the first half of the next exchange."""
        place, slots = self._places[member], self._slots_of(member)
        while place.slot < len(slots) and place.slot != stop:
            self._adapt(member)
            scores.append(self._predict(member, None))
        if place.slot == len(slots):
            return self._stretch(member, scores)._replace(paused=self.leave(member))
        return self._stretch(member, scores, self._adapt(member))

    def _stretch(self, member: int, scores: list[Score], upload: Upload | None = None) -> Stretch:
        place = self._places[member]
        ended = place.slot == len(self._slots_of(member))
        if ended:
            scores.append(self._whole(member))
        figures, place.figures = place.figures, []
        return Stretch(place.slot, ended, scores, figures, None if upload is None else Parcel(upload))

    def _adapt(self, member: int) -> Upload | None:
        """The first half of a slot: what there is to share; if it is not finite, nothing, and nothing is adapted."""
        place, slots = self._places[member], self._slots_of(member)
        made = self._adapter(member)
        if self._resets(slots, place.slot):
            place.state = made.first
        made.adapter.load_state(place.state.open())
        x, y = self._batch(slots[place.slot])
        _, seconds = self._call(member, made.adapter, "adapt", x)
        upload = self._upload(member, made.adapter, signature(made.source, x) if made.source else None, len(x))
        place.values, place.drawn = {"seconds": seconds}, None
        if not trees.finite(upload):
            place.ahead, place.values = place.state, {"seconds": seconds, "left_out": 1.0}
            return None
        place.ahead = Parcel(made.adapter.state())
        place.values |= self._draw(member, made.adapter, y)
        if upload.client in self.clients.people.liars:
            return self._lie(upload, made)
        return upload

    def _lie(self, upload: Upload, made: _Made) -> Upload:
        """What a hostile client of an experiment sends instead."""
        made.adapter.load_state(made.first.open())  # what follows loads the state it needs
        first = made.adapter.shared()
        known = {n: first[n] if first[n].shape == t.shape else torch.zeros_like(t) for n, t in upload.params.items()}
        lie = self.clients.people.hostile.lie(upload.params, known, self.trial.seed, upload.slot)
        return upload._replace(params=lie)

    def _predict(self, member: int, download: Parcel | None) -> Score:
        """The second half of a slot."""
        place, slots, made = self._places[member], self._slots_of(member), self._adapter(member)
        assert place.ahead is not None
        made.adapter.load_state(place.ahead.open())
        if download is not None:
            made.adapter.load_shared(download.open())
        x, y = self._batch(slots[place.slot])
        logits, seconds = self._call(member, made.adapter, "predict", x)
        values = {**place.values, "seconds": place.values["seconds"] + seconds}
        score = self._score(member, logits, y, values)
        place.slot, place.ahead = place.slot + 1, None
        if place.slot < len(slots):
            place.state = Parcel(made.adapter.state())
        return score

    def _arrive(self, member: int, paused: Paused | None, own: tuple[Own, ...]) -> _Place:
        """Put a client where it stands, with an adapter; a newcomer is welcomed at the first slot of its stream."""
        welcomed = None if paused is None else paused.welcomed
        if own:
            states = self._states(member, own, welcomed)
            made = [one.phase for one in own if one.state is None and one.phase in states]
            welcomed = Parcel({phase: states[phase] for phase in made}) if made else None
            self._make(member, self.trial.exports.of(self.trial.members[member][0], own, states))
        elif None not in self._made:
            self._make(None, self.trial.exports.shared())
        if paused is None:
            blank = [[0] * self.task.classes for _ in range(2)]
            place = _Place(0, self._adapter(member).first, blank, welcomed)
        else:
            tally = [list(row) for row in paused.tally]
            place = _Place(paused.slot, paused.state or self._adapter(member).first, tally, welcomed)
        self._places[member] = place
        return place

    def _states(self, member: int, own: tuple[Own, ...], welcomed: Parcel | None) -> dict[int, Nest]:
        """A client's states of the phases that keep some: its own, or those it is welcomed with."""
        states: dict[int, Nest] = {} if welcomed is None else dict(welcomed.open())
        client, name = self.trial.members[member]
        for phase, released, state in own:
            finished = self.trial.exports.phases[phase]
            if state is not None:
                states[phase] = state.open()
            elif phase not in states and finished.algorithm.welcomes:
                x, _ = self._batch(self._slots_of(member)[0])
                newcomer = Newcomer(client, x, self.task, partial(self.live, client=client))
                seed_call(finished.seed, finished.position, "welcome", client, name)
                states[phase] = finished.algorithm.welcome(released.read(), newcomer)
                self._loaded = None
        return states

    def _make(self, key: int | None, knowledge: dict[str, Nest]) -> None:
        """An adapter: one per process, or one per client where clients know different things."""
        client, model = None if key is None else self.trial.members[key][0], knowledge["model"]
        net, source = self.live(model, client), None
        if self.trial.signs:
            source = self.source(model, client).requires_grad_(False).eval()
        seed_call(self.trial.seed, "test", "make")
        adapter = self.trial.recipe(net, **{name: knowledge[name] for name in self.trial.recipe.needs})
        self._made[key], self._loaded = _Made(adapter, Parcel(adapter.state()), source, model), key

    def _adapter(self, member: int) -> _Made:
        """A client's adapter, with its own model in the live net."""
        made = self._made.get(member) or self._made[None]
        if member in self._made and self._loaded != member:
            params.load(made.adapter.net, made.model)
            if made.source is not None:
                params.load(made.source, made.model)
            self._loaded = member
        return made

    def _call(
        self, member: int, adapter: Adapter, what: Literal["forward", "adapt", "predict"], x: Tensor
    ) -> tuple[Tensor, float]:
        client, name = self.trial.members[member]
        call: Callable[[Tensor], Tensor] = getattr(adapter, what)
        adapter.figures = {}
        seed_call(self.trial.seed, "test", self._places[member].slot, client, name, what)
        begin = time.perf_counter()
        result = call(x)
        return result, time.perf_counter() - begin

    def _draw(self, member: int, adapter: Adapter, y: Tensor) -> dict[str, float]:
        """Keep what an adapter wants drawn; predictions by step become counts here, where the labels are.

        Whether a guard stepped in is measured like everything that a table adds up.
        """
        figures, place = dict(adapter.figures), self._places[member]
        counted = {"stepped_in": float(figures.pop("stepped_in"))} if "stepped_in" in figures else {}
        if "predictions" in figures:
            known = y >= 0
            correct = ((figures.pop("predictions") == y) & known).sum(1)
            figures |= {"correct": correct, "count": known.sum()}
        place.drawn = Figure(*self.trial.members[member], place.slot, trees.dump(figures)) if figures else None
        return counted

    def _score(self, member: int, logits: Tensor, y: Tensor, values: dict[str, float]) -> Score:
        """Score predictions; one that is not a number is wrong, one without a label (-1) does not count."""
        place, (client, name) = self._places[member], self.trial.members[member]
        known = y >= 0
        hit = (logits.argmax(-1) == y) & ~logits.isnan().any(-1) & known
        for label, right in zip(y[known].tolist(), hit[known].tolist(), strict=True):
            place.tally[0][label] += int(right)
            place.tally[1][label] += 1
        drawn = place.drawn if known.all() else self._answered(member, logits, ~known)
        if drawn is not None:
            place.figures.append(drawn)
        counts = {"correct": float(hit.sum()), "count": float(known.sum())}
        if self.trial.test.convergence:
            counts["loss"] = float(F.cross_entropy(logits[known], y[known], reduction="sum"))
        return Score(client, name, place.slot, self._slots_of(member)[place.slot].shift, {**counts, **values})

    def _answered(self, member: int, logits: Tensor, asked: Tensor) -> Figure:
        """What is to be drawn, with the predictions of images that nobody can score: all there is to have of them."""
        place = self._places[member]
        figures = {} if place.drawn is None else trees.load(place.drawn.values)
        p = logits[asked].softmax(-1).max(-1)
        figures |= {"asked": asked.nonzero().flatten(), "answers": p.indices, "probabilities": p.values}
        figures["entropies"] = entropy(logits[asked])
        return Figure(*self.trial.members[member], place.slot, trees.dump(figures))

    def _whole(self, member: int) -> Score:
        """The stream by class."""
        (right, seen), (client, name) = self._places[member].tally, self.trial.members[member]
        values = {f"correct/{c}": float(right[c]) for c in range(len(seen)) if seen[c]}
        values |= {f"count/{c}": float(seen[c]) for c in range(len(seen)) if seen[c]}
        return Score(client, name, -1, "", values)

    def _upload(self, member: int, adapter: Adapter, sign: Tensor | None, weight: int) -> Upload:
        return Upload(self.trial.members[member][0], self._places[member].slot, adapter.shared(), sign, weight)

    def _batch(self, slot: Slot) -> tuple[Tensor, Tensor]:
        parts = [self.clients.people.examples(held) for held in slot.parts]
        return torch.cat([part.x for part in parts]), torch.cat([part.y for part in parts])

    def _slots_of(self, member: int) -> list[Slot]:
        return self.clients.slots(*self.trial.members[member], self.trial.test.batch_size)

    def _resets(self, slots: list[Slot], t: int) -> bool:
        if self.trial.test.reset == "shift":
            return t > 0 and slots[t].shift != slots[t - 1].shift
        return self.trial.test.reset == "batch"
