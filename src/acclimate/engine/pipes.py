"""Records between processes: small ones through the pipe, large blobs in a memory that both ends map.

A pipe takes blobs in small pieces, one end waiting for the other; in a shared memory they are written once and read
where they are. It belongs to nobody's file system and is gone with the last process that maps it, also after `kill -9`.
Where there is no such memory, everything goes through the pipe.
"""

from __future__ import annotations

import mmap
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from itertools import accumulate
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from pickle import PickleBuffer
from typing import Any

_HAS_MEMORY = hasattr(os, "memfd_create")

Pickling = Callable[[BytesIO, Callable[[PickleBuffer], object] | None], pickle.Pickler]
Unpickling = Callable[[BytesIO, Iterator[memoryview]], pickle.Unpickler]


def send(pipe: Connection[Any, Any], what: Any, to: int | None, pickling: Pickling) -> None:
    """Send a record to a process."""
    buffer, blobs = BytesIO(), list[memoryview]()

    def stays(found: PickleBuffer) -> bool:
        """Whether something goes through the pipe: all but blobs, as arrays must be writable on the other side."""
        view = found.raw()
        if isinstance(view.obj, bytes):
            blobs.append(view)
        return not isinstance(view.obj, bytes)

    pickling(buffer, stays if _HAS_MEMORY else None).dump(what)
    pipe.send_bytes(pickle.dumps([len(blob) for blob in blobs]))
    if blobs:
        memory = os.memfd_create("acclimate")
        try:
            for blob in blobs:
                _write(memory, blob)
            send_handle(pipe, memory, to)
        finally:
            os.close(memory)
    pipe.send_bytes(buffer.getbuffer())


def receive(pipe: Connection[Any, Any], unpickling: Unpickling) -> Any:
    """The next record."""
    sizes: list[int] = pickle.loads(pipe.recv_bytes())
    views = _mapped(recv_handle(pipe), sizes) if sizes else []
    return unpickling(BytesIO(pipe.recv_bytes()), iter(views)).load()


def _mapped(memory: int, sizes: Sequence[int]) -> list[memoryview]:
    """The blobs in a shared memory; it is let go with the last of them."""
    try:
        whole = memoryview(mmap.mmap(memory, sum(sizes), prot=mmap.PROT_READ))
    finally:
        os.close(memory)
    return [whole[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True)]


def _write(memory: int, blob: memoryview) -> None:
    while blob:
        blob = blob[os.write(memory, blob) :]
