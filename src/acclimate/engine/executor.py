"""Who does the work: this process, or several with one torch thread each.

A `Work` is installed once, then runs many tasks. Tasks and results are plain records whose nests are blobs
(`trees.dump`) or parcels, which are opened to the same copies in this process and in another, so that no result can
depend on where a task ran. Work may keep something between tasks that have the same home.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

import torch

from acclimate.errors import AcclimateError, WorkerFailed


class Work(Protocol):
    """Something workers can do; must be picklable."""

    def prepare(self, common: bytes) -> Any:
        """Decode what all tasks of one `run` share."""

    def run(self, prepared: Any, task: Any) -> Any:
        """Do one task."""


class Executor(Protocol):
    """Runs the tasks of installed work."""

    worked: Counter[int]  # tasks done by process id

    def install(self, work: Work) -> None: ...

    def run(self, common: bytes, tasks: Iterable[Any], homes: Sequence[int] | None = None) -> Iterator[tuple[int, Any]]:
        """Results as they arrive, with the position of their task; tasks with the same home meet the same worker."""


class Serial:
    """Everything in this process, one task after another."""

    def __init__(self) -> None:
        self.worked: Counter[int] = Counter()

    def install(self, work: Work) -> None:
        self._work = work

    def run(self, common: bytes, tasks: Iterable[Any], homes: Sequence[int] | None = None) -> Iterator[tuple[int, Any]]:
        prepared = self._work.prepare(common)
        for index, task in enumerate(tasks):
            result = self._work.run(prepared, task)
            self.worked[os.getpid()] += 1
            yield index, result


class Processes:
    """Worker processes, started at the first use and kept until `close` (or the end of a `with` block)."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.worked: Counter[int] = Counter()
        self._pipes: list[Connection[Any, Any]] = []
        self._processes: list[multiprocessing.process.BaseProcess] = []

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def install(self, work: Work) -> None:
        if not self._processes:
            self._start()
        # A plain pickle: torch's own would open one file descriptor per tensor.
        blob = pickle.dumps(work)
        for pipe in self._pipes:
            self._send(pipe, "install", blob)

    def run(self, common: bytes, tasks: Iterable[Any], homes: Sequence[int] | None = None) -> Iterator[tuple[int, Any]]:
        for pipe in self._pipes:
            self._send(pipe, "common", common)
        waiting = dict(zip(self._pipes, self._lines(tasks, homes), strict=True))
        busy: dict[Connection[Any, Any], int] = {}
        try:
            for pipe in self._pipes:
                self._next(pipe, waiting[pipe], busy)
            while busy:
                for ready in wait(list(busy)):
                    pipe = self._pipes[self._pipes.index(ready)]  # type: ignore[arg-type]
                    ok, result = self._receive(pipe)
                    index = busy.pop(pipe)
                    if not ok:
                        raise result
                    self._next(pipe, waiting[pipe], busy)
                    self.worked[self._pid(pipe)] += 1
                    yield index, result
        except BaseException:
            if busy:  # answers still under way would be taken for those of the next run
                self.close()
            raise

    def close(self) -> None:
        """End the workers."""
        for pipe in self._pipes:
            pipe.close()
        for process in self._processes:
            process.terminate()
            process.join()
        self._pipes, self._processes = [], []

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        with _interrupts_ignored():  # children inherit it: Ctrl-C is the parent's to handle
            for _ in range(self.workers):
                ours, theirs = context.Pipe()
                process = context.Process(target=_serve, args=(theirs,), daemon=True)
                process.start()
                theirs.close()
                self._pipes.append(ours)
                self._processes.append(process)

    def _lines(self, tasks: Iterable[Any], homes: Sequence[int] | None) -> list[Iterator[tuple[int, Any]]]:
        """What each worker takes its tasks from: one line for all, or its own where tasks have a home."""
        if homes is None:
            return [enumerate(tasks)] * len(self._pipes)
        own: list[list[tuple[int, Any]]] = [[] for _ in self._pipes]
        for index, (task, home) in enumerate(zip(tasks, homes, strict=True)):
            own[home % len(own)].append((index, task))
        return [iter(line) for line in own]

    def _next(
        self,
        pipe: Connection[Any, Any],
        waiting: Iterator[tuple[int, Any]],
        busy: dict[Connection[Any, Any], int],
    ) -> None:
        for index, task in waiting:
            self._send(pipe, "task", task)
            busy[pipe] = index
            return

    def _send(self, pipe: Connection[Any, Any], kind: str, what: Any) -> None:
        try:
            pipe.send((kind, what))
        except OSError as error:
            raise self._died(pipe) from error

    def _receive(self, pipe: Connection[Any, Any]) -> tuple[bool, Any]:
        try:
            answer: tuple[bool, Any] = pipe.recv()
        except (EOFError, OSError) as error:
            raise self._died(pipe) from error
        return answer

    def _pid(self, pipe: Connection[Any, Any]) -> int:
        return self._processes[self._pipes.index(pipe)].pid or 0

    def _died(self, pipe: Connection[Any, Any]) -> WorkerFailed:
        process = self._processes[self._pipes.index(pipe)]
        process.join(1)
        return WorkerFailed(
            f"worker process {process.pid} died (exit code {process.exitcode}); it may have run out of memory. "
            "What was finished is saved: run the same command again, with fewer --workers if it happens again"
        )


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


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # only the main thread may change signals
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _serve(pipe: Connection[Any, Any]) -> None:
    """A worker's life: until the parent closes the pipe or dies."""
    torch.set_num_threads(1)
    work: Work | None = None
    common, prepared, fresh = b"", None, False
    with suppress(EOFError, OSError):
        while True:
            kind, what = pipe.recv()
            if kind == "install":
                work = pickle.loads(what)
            elif kind == "common":
                common, fresh = what, True
            else:
                assert work is not None
                try:
                    if fresh:
                        prepared, fresh = work.prepare(common), False
                    answer = (True, work.run(prepared, what))
                except AcclimateError as error:
                    answer = (False, error)
                except Exception:
                    answer = (False, WorkerFailed(f"unexpected error in a worker:\n{traceback.format_exc()}"))
                pipe.send(answer)
