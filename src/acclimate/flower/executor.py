"""An executor whose clients are on other machines, behind a line that carries letters.

All tasks of a run for clients of one node are one letter, so there is at most one per node and exchange. What does not
come back in time, or comes back as something else, is `Lost`: it costs those clients' contribution and nothing else.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import yaml

from acclimate.engine.client import Clients
from acclimate.engine.known import Elsewhere
from acclimate.engine.messages import Alone, Begin, GoOn, Lost, Part, Paused, Save, Stretch
from acclimate.engine.tester import Trial
from acclimate.engine.trainee import Training
from acclimate.engine.work import Work
from acclimate.errors import AcclimateError
from acclimate.flower.codec import RECORDS, Letter, digest_of, pack, read, unpack, written
from acclimate.flower.places import OnNodes, Places
from acclimate.flower.sound import fault
from acclimate.scenarios.nodes import Holder
from acclimate.scenarios.population import Population
from acclimate.trees import Parcel, Shared, dump
from acclimate.version import __version__

HELLO, TRAIN, TEST = "query", "train", "evaluate"  # kinds of letters, as Flower names them
LOOK_SECONDS = 2.0  # between looks for nodes
NOBODY = "no node that is there serves it"


class TooFewNodes(AcclimateError):
    """Not enough nodes, or none that serves the clients of an experiment."""


class Line(Protocol):
    """Carries letters to nodes."""

    def nodes(self) -> list[int]:
        """The nodes that are there now."""

    def ask(self, kind: str, letters: Mapping[int, Letter], seconds: float) -> Iterator[tuple[int, Letter | Lost]]:
        """The answers of nodes as they come, each of them once; `Lost` where there is none in time."""


class Asked(NamedTuple):
    """A task, and the digest of where its client stands."""

    task: Any
    at: str = ""


class Answered(NamedTuple):
    """A result, and the digest of where its client stands now."""

    result: Any
    at: str = ""


class Exchange(NamedTuple):
    """What one run of tasks cost on the line."""

    kind: str
    messages: int
    bytes_down: int
    bytes_up: int
    seconds: float


@dataclass
class _Known:
    """What the server knows of a node."""

    part: tuple[int, int] = (0, 1)  # the clients whose number leaves this remainder, by that many nodes
    holder: Holder | None = None  # where it has data of its own
    has: set[str] = field(default_factory=set)  # lasting blobs, by digest

    def __str__(self) -> str:
        if self.holder is None:
            return "serves part {} of {}".format(*self.part)
        return "is '{}', with {} images to train on and {} to meet".format(*self.holder)


class OnLine:
    """Lets clients of nodes work.

    `nodes` must be there before the first task, within `wait` seconds; a letter is given up after `deadline` seconds.
    """

    def __init__(
        self,
        line: Line,
        experiment: OnNodes,
        *,
        nodes: int = 1,
        wait: float = 120.0,
        deadline: float = 900.0,
        say: Callable[[str], None] = print,
    ) -> None:
        self.worked: Counter[int] = Counter()
        self.exchanges: list[Exchange] = []
        self._line, self._say = line, say
        self._nodes, self._wait, self._deadline = nodes, wait, deadline
        self.bind(experiment)
        self._known: dict[int, _Known] = {}
        self._refused: dict[int, str] = {}  # nodes that do not take part, and why
        self._aside: dict[int, str] = {}  # nodes that do not for now
        self._at: dict[int, tuple[int, str]] = {}  # member → the slot it stands at, and the digest

    def bind(self, experiment: OnNodes) -> None:
        """The experiment, once it is known who has which data."""
        self._experiment, self._places = experiment, Places(experiment)
        self._ids = {holder.name: id for id, holder in enumerate(experiment.holders)}

    def holders(self) -> list[Holder]:
        """What nodes that take part have said of data of their own."""
        return [one.holder for id, one in self._known.items() if one.holder is not None and id not in self._aside]

    def greet(self) -> None:
        """Wait for the nodes, tell them the experiment and learn whom they serve."""
        end = time.monotonic() + self._wait
        while len(self._there()) < self._nodes:
            if time.monotonic() > end:
                raise TooFewNodes(self._too_few())
            time.sleep(LOOK_SECONDS)

    def meet(self, people: Population) -> None:
        self._people, self._clients = people, Clients(people)

    def install(self, work: Work) -> None:
        assert isinstance(work, Training | Trial)
        self._work, self._doing, self._at = work, work.open(self._clients), {}
        scene = self._experiment.scene(self._people)
        commons = {digest_of(parcel.blob): parcel.blob for parcel in work.exports.common}
        trained = self._experiment.populations(scene.seed)[0]
        told = dump(self._places.told(work, trained, list(commons)))
        self._lasting = {**commons, digest_of(told): told}
        self._head = {"experiment": self._experiment.run_name, "scene": list(scene), "work": digest_of(told)}

    def run(
        self, chunks: Iterable[Sequence[Any]], homes: Sequence[int] | None = None, count: int | None = None
    ) -> Iterator[tuple[int, Any]]:
        listed = [list(chunk) for chunk in chunks]
        results: dict[tuple[int, int], Any] = {
            (c, i): self._saved(task) for c, chunk in enumerate(listed) for i, task in enumerate(chunk)
            if isinstance(task, Save)
        }  # fmt: skip
        open_chunks = dict(enumerate(listed))
        for answered in self._answers(listed, results):
            results.update(answered)
            for c in [c for c, chunk in open_chunks.items() if all((c, i) in results for i in range(len(chunk)))]:
                chunk = open_chunks.pop(c)
                yield c, self._doing.fold([(task, results.pop((c, i))) for i, task in enumerate(chunk)])

    def _answers(
        self, listed: list[list[Any]], known: Mapping[tuple[int, int], Any]
    ) -> Iterator[dict[tuple[int, int], Any]]:
        """Results as nodes answer, by chunk and place in it."""
        known = dict(known)  # what is folded is forgotten by whoever asks
        yield known
        by_node: dict[int | None, list[tuple[tuple[int, int], Any]]] = {}
        homes = self._homes()
        for c, chunk in enumerate(listed):
            for i, task in enumerate(chunk):
                if (c, i) not in known:
                    by_node.setdefault(homes(self._client(task)), []).append(((c, i), task))
        yield {key: Lost(self._why(self._client(task))) for key, task in by_node.pop(None, [])}
        if not by_node:
            return
        began, letters = time.monotonic(), dict[int, Letter]()
        for node, tasks in by_node.items():
            assert node is not None
            letters[node] = self._letter(node, [task for _, task in tasks])
        up, kind = 0, TRAIN if isinstance(self._work, Training) else TEST
        for node, answer in self._line.ask(kind, letters, self._deadline):
            up += answer.size if isinstance(answer, Letter) else 0
            tasks = by_node.pop(node)
            yield dict(
                zip([key for key, _ in tasks], self._read(node, answer, [task for _, task in tasks]), strict=True)
            )
            self.worked[node] += 1
        down = sum(letter.size for letter in letters.values())
        self.exchanges.append(Exchange(kind, len(letters), down, up, time.monotonic() - began))
        self._say(
            f"{kind}: {len(letters)} message(s), {down:,} bytes down, {up:,} up, {self.exchanges[-1].seconds:.1f} s"
        )

    def _letter(self, node: int, tasks: Sequence[Any]) -> Letter:
        """All tasks of a node."""
        shared: dict[str, Shared] = {}
        seconds = self._deadline / (4 * len(tasks))  # for one stream without exchanges, of all that are in this letter
        longer = [
            task._replace(seconds=max(task.seconds, seconds)) if isinstance(task, Alone) else task for task in tasks
        ]
        asked = [Asked(task, self._stands(task)[1]) for task in longer]
        records, has = pack(asked, shared), self._known[node].has
        # What phases have left is needed again and again: the node keeps it.
        released = {digest_of(one.released.blob) for task in tasks for one in getattr(task, "own", ())}
        all_of_it = {**self._lasting, **{name: parcel.blob for name, parcel in shared.items()}}
        blobs = {name: blob for name, blob in all_of_it.items() if name not in has}
        keep = [name for name in blobs if name in released or name in self._lasting]
        has.update(keep)
        holder = self._known[node].holder
        own = {} if holder is None else {"client": self._ids[holder.name]}
        return Letter(written({**self._head, **own, "keep": keep}), {RECORDS: records, **blobs})

    def _read(self, node: int, answer: Letter | Lost, tasks: Sequence[Any]) -> list[Any]:
        """What a node has sent, looked at: one result for each task."""
        lost = answer if isinstance(answer, Lost) else None
        if isinstance(answer, Letter):
            try:
                said, blobs = read(answer), answer.blobs
                if "error" not in said:
                    found = unpack(blobs[RECORDS], dict[str, bytes]().__getitem__)  # an answer shares nothing
                    return [self._looked_at(*pair) for pair in zip(tasks, found, strict=True)]
                lost = Lost(_cut(said["error"]))
            except Exception as error:  # whatever a node may send
                why = f"{type(error).__name__}: {_cut(error, 200)}"
                lost = Lost(f"its node sent something that cannot be read ({why})")
        self._known[node].has.clear()  # it may have started anew
        return [lost] * len(tasks)

    def _looked_at(self, task: Any, answered: Any) -> Any:
        """A result, if it can be one of this task."""
        if not isinstance(answered, Answered) or not isinstance(answered.at, str):
            return Lost("its node sent no answer to what was asked")
        if isinstance(answered.result, Lost):
            return Lost(_cut(answered.result.reason))
        if found := fault(self._work, self._clients, task, self._stands(task)[0], answered.result):
            return Lost(f"its node sent {found}")
        if isinstance(answered.result, Stretch):
            self._at[task.member] = (answered.result.slot, answered.at)
        return answered.result

    def _saved(self, task: Save) -> Paused | Lost:
        """Where a client stands: its node has saved it, so that nobody needs to be asked."""
        if task.member not in self._at:
            return Lost("it has not answered yet")
        slot, at = self._at[task.member]
        return Paused(slot, Parcel(Elsewhere(at)), [])

    def _stands(self, task: Any) -> tuple[int, str]:
        """The slot that a client stands at, and the digest of where, for a node that was not told with the task."""
        if isinstance(task, GoOn):
            return self._at.get(task.member, (0, ""))
        paused = getattr(task, "paused", None)
        return (0 if paused is None else paused.slot), ""

    def _client(self, task: Part | Alone | Begin | GoOn) -> int:
        if isinstance(task, Part):
            return task.id
        assert isinstance(self._work, Trial)
        return self._work.members[task.member][0]

    def _homes(self) -> Callable[[int], int | None]:
        """Where each client is now."""
        if not self._there():
            self._say(f"no node is there; waiting {self._wait:g} s for one to come back")
            end = time.monotonic() + self._wait
            while not self._there():
                if time.monotonic() > end:
                    raise TooFewNodes(f"{self._too_few(1)}; what was finished is saved: run it again to go on")
                time.sleep(LOOK_SECONDS)
        there = self._there()
        return lambda client: next((node for node in there if self._serves(self._known[node], client)), None)

    def _serves(self, node: _Known, client: int) -> bool:
        if node.holder is not None:
            return self._ids.get(node.holder.name) == client
        return client % node.part[1] == node.part[0]

    def _there(self) -> list[int]:
        """The nodes that take part and are there now; whoever is new is greeted first."""
        online = sorted(self._line.nodes())
        new = [node for node in online if node not in self._known and node not in self._refused]
        if new:
            text = yaml.safe_dump(self._experiment.plain(), sort_keys=False)
            hello = {"version": __version__, "experiment": self._experiment.run_name, "text": text}
            for node, answer in self._line.ask(HELLO, dict.fromkeys(new, Letter(written(hello), {})), self._deadline):
                self._note(node, answer)
        return self._agreeing([node for node in self._known if node in online])

    def _agreeing(self, online: Sequence[int]) -> list[int]:
        """Those without the ones that are set aside for now: of two that claim the same clients, who came later."""
        usual = Counter(self._known[node].part[1] for node in online).most_common(1)
        aside, first = dict[int, str](), dict[Any, int]()
        for node in online:
            one = self._known[node]
            claim = one.part if one.holder is None else one.holder.name
            if why := self._misfit(one, usual[0][0]):
                aside[node] = why
            elif first.setdefault(claim, node) != node:
                aside[node] = f"it {one}, and node {first[claim]} is there for these clients; give each node its own"
        for node in [node for node, why in aside.items() if self._aside.get(node) != why]:
            self._say(f"node {node} does not take part for now: {aside[node]}")
        self._aside = aside
        return [node for node in online if node not in aside]

    def _misfit(self, one: _Known, parts: int) -> str | None:
        """Why a node cannot serve what it claims, where clients are cut into so many parts; None: it can."""
        if one.part[1] != parts:
            return f"it {one}, where most nodes serve parts of {parts}; give all of them the same num-partitions"
        if one.holder is not None and one.holder.name in self._ids:
            had = self._experiment.holders[self._ids[one.holder.name]].test
            if had != one.holder.test:
                return f"it {one}, and had {had} to meet when the run began; give it back what it had, or begin anew"
        return None

    def _note(self, node: int, answer: Letter | Lost) -> None:
        """Who a node serves, or why it does not take part."""
        if isinstance(answer, Lost):
            self._say(f"node {node} did not answer ({answer.reason})")  # it is greeted again at the next look
            return
        try:
            said = read(answer)
            if "error" in said:
                self._refused[node] = _cut(said["error"], 2000)
            else:
                self._known[node] = self._introduced(said)
        except Exception as error:  # whatever a node may send
            self._refused[node] = _cut(f"it sent something that cannot be used ({type(error).__name__}: {error})")
        taken = node in self._known
        self._say(f"node {node} " + (str(self._known[node]) if taken else f"does not take part: {self._refused[node]}"))

    def _introduced(self, said: Mapping[str, Any]) -> _Known:
        """What a node says of itself: which clients it serves, as the experiment wants it, and what it has already."""
        has = {str(digest) for digest in said["has"]}
        if self._experiment.own_data:
            return _Known(holder=Holder.of(said["holder"]), has=has)
        index, of = said["part"]
        if type(index) is not int or type(of) is not int or not 0 <= index < of:
            raise ValueError(f"expected a part of some, found {index!r} of {of!r}; see its partition-id")
        return _Known((index, of), has=has)

    def _why(self, client: int) -> str:
        return "; ".join([NOBODY, *self._absent()])

    def _too_few(self, needed: int | None = None) -> str:
        there, absent = len(self._there()), "; ".join(self._absent())
        return (
            f"expected {needed or self._nodes} node(s) within {self._wait:g} s, found {there}"
            + (f" ({absent})" if absent else "")
            + "; start SuperNodes (docs/flower.md), or ask for fewer: nodes in the app's configuration"
        )

    def _absent(self) -> list[str]:
        return [f"node {node} refused: {why}" for node, why in {**self._refused, **self._aside}.items()]


def _cut(said: object, most: int = 500) -> str:
    """What somebody else has written, cut where it is long, and without halves of characters, which no log can hold."""
    return str(said)[:most].encode(errors="replace").decode()
