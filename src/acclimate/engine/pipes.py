"""Records between processes: small ones through a pipe, large ones and large blobs in memories that both ends map.

A pipe takes blobs in small pieces, one end waiting for the other; in a shared memory they are written once and read
where they are. It belongs to nobody's file system and is gone with the last process that maps it, also after `kill -9`.
A new memory costs ten times what is written into it (the system makes it page by page, for both ends), so memories are
used again: the receiver tells in its next record which ones nothing there needs any more. What goes through the pipe
itself is so small that a few records fit into it, and nobody waits to get rid of one. Where there is no such memory,
everything goes through the pipe.
"""

from __future__ import annotations

import mmap
import os
import pickle
import weakref
from collections.abc import Callable, Iterator
from io import BytesIO
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pickle import PickleBuffer
from typing import Any, NamedTuple

import numpy as np

from acclimate.trees import APART

HAS_MEMORY = hasattr(os, "memfd_create")
SMALL = 2**15  # bytes of a record that may go through the pipe
MOST_MEMORIES, LARGEST = 8, 2**25  # that one end uses again, and bytes of each

Pickling = Callable[[BytesIO, Callable[[PickleBuffer], object] | None], pickle.Pickler]
Unpickling = Callable[[BytesIO, Iterator[memoryview]], pickle.Unpickler]


class _Head(NamedTuple):
    """What goes through the pipe."""

    record: bytes  # empty: it is the first of the blobs
    blobs: list[tuple[int | None, int]]  # the memory of each, and its size; None: in one that is used once
    new: set[int | None]  # memories whose handles follow, in the order of the blobs
    done: list[int]  # the receiver's memories that nothing here needs any more


class Wire:
    """One end of a pipe, and the memories it shares with the other end."""

    def __init__(self, pipe: Connection[Any, Any], to: int | None) -> None:
        self.pipe, self._to = pipe, to  # the process at the other end
        self._numbers = count()
        self._mine: dict[int, mmap.mmap] = {}
        self._free: list[int] = []  # of mine: what nobody reads
        self._theirs: dict[int, mmap.mmap] = {}
        self._done: list[int] = []  # of theirs: to be told

    def send(self, what: Any, pickling: Pickling, passing: bool = True) -> None:
        """Send a record; `passing` is one that the other end soon lets go of."""
        buffer, blobs = BytesIO(), list[memoryview]()

        def stays(found: PickleBuffer) -> bool:
            """Whether something goes with the record: all but what is large."""
            view = found.raw()
            if len(view) >= APART:
                blobs.append(view)
            return len(view) < APART

        pickling(buffer, stays if HAS_MEMORY else None).dump(what)
        record = buffer.getbuffer()
        apart = [record, *blobs] if HAS_MEMORY and len(record) > SMALL else blobs
        places: list[tuple[int | None, int]] = []
        handles: dict[int | None, list[int]] = {}
        for blob in apart:
            number, handle = self._written(blob, passing)
            places.append((number, len(blob)))
            if handle is not None:
                handles.setdefault(number, []).append(handle)
        done = self._done[:]
        del self._done[: len(done)]  # more may have come meanwhile
        head = _Head(b"" if len(apart) > len(blobs) else bytes(record), places, set(handles), done)
        try:
            self.pipe.send_bytes(pickle.dumps(tuple(head)))
            for number, _ in places:
                if number in handles:
                    send_handle(self.pipe, handles[number][0], self._to)
                    os.close(handles[number].pop(0))
        finally:
            for handle in (handle for left in handles.values() for handle in left):
                os.close(handle)

    def receive(self, unpickling: Unpickling) -> Any:
        """The next record."""
        head = _Head(*pickle.loads(self.pipe.recv_bytes()))
        self._free += head.done
        views = [self._mapped(number, size, number in head.new) for number, size in head.blobs]
        return unpickling(BytesIO(head.record or views.pop(0)), iter(views)).load()

    def _written(self, blob: memoryview, passing: bool) -> tuple[int | None, int | None]:
        """The number of the memory where a blob is now, and its handle if it is new."""
        fitting = [number for number in self._free if len(self._mine[number]) >= len(blob)]
        if fitting and passing:
            number = min(fitting, key=lambda number: len(self._mine[number]))
            self._free.remove(number)
            self._mine[number][: len(blob)] = blob
            return number, None
        handle = os.memfd_create("acclimate")
        if not passing or len(self._mine) >= MOST_MEMORIES or len(blob) > LARGEST:
            while blob:
                blob = blob[os.write(handle, blob) :]
            return None, handle
        os.ftruncate(handle, len(blob) + len(blob) // 8)  # the next one may be a little longer
        number = next(self._numbers)
        self._mine[number] = mmap.mmap(handle, 0)
        self._mine[number][: len(blob)] = blob
        return number, handle

    def _mapped(self, number: int | None, size: int, new: bool) -> memoryview:
        """A blob in a shared memory. Whoever sent it does not touch it until all that refers to it here is gone."""
        if new:
            handle = recv_handle(self.pipe)
            try:
                memory = mmap.mmap(handle, 0)
            finally:
                os.close(handle)
            if number is not None:
                self._theirs[number] = memory
        else:
            memory = self._theirs[number]  # type: ignore[index]
        blob = np.frombuffer(memory, np.uint8, size)
        if number is not None:
            weakref.finalize(blob, self._done.append, number).atexit = False
        return memoryview(blob)  # type: ignore[arg-type]
