"""Who does the work: this process, or several with one torch thread each.

An executor has met some clients. What they do from now on, a phase or a test, is installed once; then they do many
tasks, each for one client, chunk by chunk. Tasks and results are plain records whose nests are parcels, which are
opened to the same copies in this process and in another, so that no result can depend on where a task ran. A process
may keep something between tasks that have the same home.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing.connection import wait
from typing import Any, Protocol

import torch

from acclimate.engine.client import Clients
from acclimate.engine.pipes import HAS_MEMORY
from acclimate.engine.work import Work, each_done
from acclimate.engine.worker import Chunks, Install, Meet, Worker, interrupts_ignored
from acclimate.errors import WorkerFailed, WorkerLost
from acclimate.scenarios.population import Population

MOST_TRIES = 3  # of a task whose worker dies
AHEAD = 2  # batches that a worker has, so that it need not wait for the next
LOOK_SECONDS = 2.0  # between looks whether a silent worker was stopped


Batch = list[tuple[int, Sequence[Any]]]  # chunks with their positions


class Executor(Protocol):
    """Lets clients work."""

    worked: Counter[int]  # chunks done by process id

    def meet(self, people: Population) -> None:
        """The clients whose work it is from now on."""

    def install(self, work: Work) -> None:
        """What they do from now on."""

    def run(
        self, chunks: Iterable[Sequence[Any]], homes: Sequence[int] | None = None, count: int | None = None
    ) -> Iterator[tuple[int, Any]]:
        """What is left of each chunk, as it arrives, with its position; chunks with the same home meet one process.

        `count` is how many chunks there are, where nothing can be done with some of them alone.
        """


class Serial:
    """Everything in this process, one task after another."""

    def __init__(self, people: Population | None = None) -> None:
        self.worked: Counter[int] = Counter()
        self._people: Population | None = None
        if people is not None:
            self.meet(people)

    def meet(self, people: Population) -> None:
        if people is not self._people:
            self._people, self._clients = people, Clients(people)

    def install(self, work: Work) -> None:
        self._doing = work.open(self._clients)

    def run(
        self, chunks: Iterable[Sequence[Any]], homes: Sequence[int] | None = None, count: int | None = None
    ) -> Iterator[tuple[int, Any]]:
        for index, chunk in enumerate(chunks):
            folded = self._doing.fold(each_done(self._doing, chunk))
            self.worked[os.getpid()] += 1
            yield index, folded


class Processes:
    """Worker processes, started at the first use and kept until `close` (or the end of a `with` block).

    The chunks of a worker that dies or is stopped are done again by another in its place, with the same bits, since all
    they need came with them. Where chunks have homes, workers keep what no chunk brings along: all of them start anew,
    and `WorkerLost` tells the caller to go on from what it saved last.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.worked: Counter[int] = Counter()
        self._workers: list[Worker] = []
        self._people: Population | None = None
        self._work: Work | None = None

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def meet(self, people: Population) -> None:
        if people is not self._people:
            self._people, self._work = people, None
            for worker in self._workers:
                self._send(worker, Meet(people))

    def install(self, work: Work) -> None:
        self._work = work
        if self._workers:
            for worker in self._workers:
                self._send(worker, Install(work))
        else:
            with interrupts_ignored():
                self._workers = [Worker() for _ in range(self.workers)]
            for worker in self._workers:
                self._prepare(worker)

    def run(
        self, chunks: Iterable[Sequence[Any]], homes: Sequence[int] | None = None, count: int | None = None
    ) -> Iterator[tuple[int, Any]]:
        if not self._workers and self._work is not None:
            self.install(self._work)
        lines = self._lines(chunks, homes, count)
        busy: dict[Worker, deque[Batch]] = {}
        try:
            ahead = 1 if count is None or not HAS_MEMORY else AHEAD
            for worker, line in list(zip(self._workers, lines, strict=True)) * ahead:
                self._next(worker, line, busy)
            tries: Counter[int] = Counter()
            while busy:
                for place, (worker, answer) in self._answers(busy):
                    if answer is None:
                        self._again(place, busy, tries, homes is not None)
                        continue
                    ok, results = answer
                    if not ok:
                        raise results
                    batch = busy[worker].popleft()
                    self._next(worker, lines[place], busy)
                    if not busy[worker]:
                        del busy[worker]
                    self.worked[worker.process.pid or 0] += len(batch)
                    yield from ((index, result) for (index, _), result in zip(batch, results, strict=True))
        except BaseException:
            if busy:  # answers still under way would be taken for those of the next run
                self.close()
            raise

    def close(self) -> None:
        """End the workers."""
        for worker in self._workers:
            worker.end()
        self._workers = []

    def _prepare(self, worker: Worker) -> None:
        assert self._people is not None and self._work is not None
        self._send(worker, Meet(self._people))
        self._send(worker, Install(self._work))

    def _again(self, place: int, busy: dict[Worker, deque[Batch]], tries: Counter[int], at_home: bool) -> None:
        """Let a new worker do what one that died has left."""
        batches = busy.pop(self._workers[place])
        first, _ = batches[0][0]
        tries[first] += 1
        self._replace(place, at_home, tries[first] >= MOST_TRIES)
        busy[self._workers[place]] = batches
        for batch in batches:
            self._send(self._workers[place], Chunks([chunk for _, chunk in batch]))

    def _replace(self, place: int, at_home: bool, hopeless: bool) -> None:
        """Put a new worker where one died."""
        lost = self._workers[place].process
        lost.kill()
        lost.join()
        told = f"worker process {lost.pid} died (exit code {lost.exitcode})"
        if hopeless:
            self.close()
            raise WorkerFailed(
                f"{told}, as did those before it at the same task; it may have run out of memory. What was finished is "
                "saved: run the same command again, with fewer --workers if it happens again"
            )
        if at_home:
            self.close()
            raise WorkerLost(f"{told}; what it kept is gone")
        self._workers[place].wire.pipe.close()
        with interrupts_ignored():
            self._workers[place] = Worker()
        self._prepare(self._workers[place])

    def _answers(self, busy: dict[Worker, deque[Batch]]) -> list[tuple[int, tuple[Worker, tuple[bool, Any] | None]]]:
        """Who has answered what, in which place; None: it died or was stopped."""
        ready = wait([worker.wire.pipe for worker in busy], LOOK_SECONDS)
        heard: list[tuple[int, tuple[Worker, tuple[bool, Any] | None]]] = []
        for place, worker in enumerate(self._workers):
            if worker.wire.pipe in ready:
                try:
                    heard.append((place, (worker, worker.receive())))
                except (EOFError, OSError):
                    heard.append((place, (worker, None)))
            elif not ready and worker in busy and worker.is_stopped():
                heard.append((place, (worker, None)))
        return heard

    def _lines(
        self, chunks: Iterable[Sequence[Any]], homes: Sequence[int] | None, count: int | None
    ) -> list[Iterator[Batch]]:
        """What each worker takes its chunks from: one line for all, or its own where chunks have a home."""
        if homes is None:
            return [batches(enumerate(chunks), count, 2 * self.workers)] * self.workers
        own: list[Batch] = [[] for _ in self._workers]
        for index, (chunk, home) in enumerate(zip(chunks, homes, strict=True)):
            own[home % len(own)].append((index, chunk))
        return [batches(iter(line), None if count is None else len(line), 2) for line in own]

    def _next(self, worker: Worker, line: Iterator[Batch], busy: dict[Worker, deque[Batch]]) -> None:
        for batch in line:
            busy.setdefault(worker, deque()).append(batch)
            self._send(worker, Chunks([chunk for _, chunk in batch]))
            return

    def _send(self, worker: Worker, what: Meet | Install | Chunks) -> None:
        with suppress(OSError):  # it is dead: noticed when it does not answer
            worker.send(what)


def batches(line: Iterator[tuple[int, Sequence[Any]]], count: int | None, parts: int) -> Iterator[Batch]:
    """Chunks that travel together: of what is left, always one part of so many, so that all workers end together.

    Of unknown many, each travels alone, and is heard of as soon as it is done.

    >>> [len(batch) for batch in batches(enumerate("abcdefghij"), 10, 4)]
    [3, 2, 2, 1, 1, 1]
    >>> [len(batch) for batch in batches(enumerate("abc"), None, 4)]
    [1, 1, 1]
    """
    done = 0
    while batch := list(islice(line, 1 if count is None else max(1, -(-(count - done) // parts)))):
        done += len(batch)
        yield batch


def in_order(results: Iterable[tuple[int, Any]]) -> Iterator[Any]:
    """Results in the order of their tasks; late ones hold early ones back."""
    early: dict[int, Any] = {}
    following = 0
    for index, result in results:
        early[index] = result
        while following in early:
            yield early.pop(following)
            following += 1


def chunks(ids: Sequence[int], pieces: int = 32) -> list[Sequence[int]]:
    """A cohort cut into at most `pieces` runs of equal length: by its size alone, never by the workers."""
    size = -(-len(ids) // pieces) or 1
    return [ids[start : start + size] for start in range(0, len(ids), size)]


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def one_thread() -> Iterator[None]:
    """One torch thread, as in the workers, so that the same bits come out."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
