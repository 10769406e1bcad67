"""One worker process: how its parent talks to it, and its life.

What travels is a pickle over a pipe between a process and the one that it started, and nobody else. A parcel that a
worker has already is sent as a number.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import torch

from acclimate import plugins
from acclimate.engine.client import Clients
from acclimate.engine.memory import keep_freed_memory
from acclimate.engine.pipes import Wire
from acclimate.engine.work import Doing, Work, each_done
from acclimate.errors import AcclimateError, WorkerFailed
from acclimate.scenarios.population import Population
from acclimate.trees import Shared, sendable

MOST_SHARED = 8  # parcels that a process remembers, besides lasting ones
# Most of a worker's start is importing torch: a server that has imported it, and done nothing else, forks all of them.
HAS_SERVER = "forkserver" in multiprocessing.get_all_start_methods()


class Install(NamedTuple):
    """What to do from now on."""

    work: Work


class Meet(NamedTuple):
    """For whom."""

    people: Population


class Chunks(NamedTuple):
    """Chunks that travel together; so does what is left of them."""

    chunks: list[Sequence[Any]]


class Import(NamedTuple):
    """Plug-ins that what comes next may need."""

    plugins: Sequence[plugins.Imported]


class Worker:
    """A worker process, seen from its parent."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("forkserver") if HAS_SERVER else multiprocessing.get_context("spawn")
        context.set_forkserver_preload(["torch"])
        pipe, theirs = context.Pipe()
        # the server has the environment of its own start
        self.process: BaseProcess = context.Process(target=serve, args=(theirs, dict(os.environ)), daemon=True)
        self.process.start()
        theirs.close()
        self.wire, self._sent = Wire(pipe, self.process.pid), Remembered()
        self._imported = 0  # plug-ins that it was told of

    def send(self, what: Meet | Install | Chunks | Import) -> None:
        if isinstance(what, Meet):
            self._sent = Remembered()
        new = plugins.imported()[self._imported :]
        if new:  # before anything that may need them
            self._imported += len(new)
            self.send(Import(new))
        self.wire.send(what, partial(Pickler, sent=self._sent), passing=isinstance(what, Chunks))

    def receive(self) -> tuple[bool, Any]:
        answer: tuple[bool, Any] = self.wire.receive(Unpickler)
        return answer

    def is_stopped(self) -> bool:
        """Whether somebody has stopped it (SIGSTOP), so that it would never answer."""
        with suppress(OSError, IndexError):
            return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
        return False

    def end(self) -> None:
        self.wire.pipe.close()
        self.process.kill()
        self.process.join()


def serve(pipe: Connection[Any, Any], environment: Mapping[str, str]) -> None:
    """A worker's life: until the parent closes the pipe or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(1)
    keep_freed_memory()
    parent = multiprocessing.parent_process()
    wire, received, clients = Wire(pipe, parent.pid if parent else None), Remembered(), None
    work: Work | None = None
    doing: Doing | None = None
    answer: tuple[bool, Any]
    with suppress(EOFError, OSError):
        while True:
            what = wire.receive(partial(Unpickler, received=received))
            if isinstance(what, Import):
                plugins.share(what.plugins)
                continue
            if isinstance(what, Meet):
                received, clients = Remembered(), Clients(what.people)
                continue
            if isinstance(what, Install):
                work, doing = what.work, None
                continue
            assert clients is not None and work is not None
            try:
                doing = work.open(clients) if doing is None else doing
                answer = (True, [doing.fold(each_done(doing, tasks)) for tasks in what.chunks])
            except AcclimateError as error:
                answer = (False, error)
            except Exception:
                answer = (False, WorkerFailed(f"unexpected error in a worker:\n{traceback.format_exc()}"))
            wire.send(answer, Pickler)
            del what, answer  # what they refer to can be used again


class Remembered(OrderedDict[int, Shared]):
    """The shared parcels of one process: lasting ones for ever, of others the last few. Both ends keep the same."""

    def note(self, key: int, parcel: Shared) -> None:
        self[key] = parcel
        passing = [key for key, parcel in self.items() if not parcel.lasting]
        for key in passing[:-MOST_SHARED]:
            del self[key]


class Pickler(pickle.Pickler):
    """Sends a shared parcel as a number where the other end has it already."""

    def __init__(self, buffer: io.BytesIO, apart: Any, sent: Remembered | None = None) -> None:
        super().__init__(buffer, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=apart)
        self._sent = sent

    def persistent_id(self, obj: Any) -> tuple[int, Any] | None:
        if not isinstance(obj, Shared) or self._sent is None:
            return None
        if obj.key in self._sent:
            return obj.key, None
        self._sent.note(obj.key, obj)
        return obj.key, (sendable(obj.seal(), pickle.HIGHEST_PROTOCOL), obj.lasting)


class Unpickler(pickle.Unpickler):
    """The other end of `Pickler`."""

    def __init__(self, buffer: io.BytesIO, apart: Iterator[memoryview], received: Remembered | None = None) -> None:
        super().__init__(buffer, buffers=apart)
        self._received = Remembered() if received is None else received

    def persistent_load(self, pid: tuple[int, Any]) -> Shared:
        key, content = pid
        if content is not None:
            self._received.note(key, Shared(*content))
        return self._received[key]


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Nobody ends by Ctrl-C meanwhile; children inherit it until they say so themselves."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread may change signals
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
