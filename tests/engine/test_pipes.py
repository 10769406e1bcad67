import gc
import os
import pickle
from multiprocessing import Pipe

import numpy as np
import pytest

from acclimate.engine import pipes
from acclimate.engine.pipes import Wire
from acclimate.engine.worker import Pickler, Unpickler
from acclimate.trees import APART, Parcel


def ends():
    return [Wire(end, os.getpid()) for end in Pipe()]


def passed(here, there, what, **more):
    here.send(what, Pickler, **more)
    return there.receive(Unpickler)


# Without a memory nobody reads while this test writes, so only what fits into the pipe.
@pytest.mark.parametrize(
    ("size", "memory"), [(1, False), (2000, False), (1, True), (pipes.SMALL, True), (APART // 8, True), (APART, True)]
)
def test_what_arrives_is_what_was_sent_and_may_be_written_to(size, memory, monkeypatch):
    monkeypatch.setattr(pipes, "HAS_MEMORY", memory)
    here, there = ends()
    sent = {"a": np.arange(size, dtype=np.float64), "b": Parcel(b"x" * size), "c": [1, None, "text"]}
    found = passed(here, there, sent)
    assert np.array_equal(found["a"], sent["a"])
    assert (found["b"].seal(), found["c"]) == (b"x" * size, [1, None, "text"])
    found["a"] += 1
    assert sent["a"][0] == 0


def test_a_memory_is_used_again_once_nothing_refers_to_it_and_that_was_told():
    here, there = ends()
    first = passed(here, there, np.zeros(APART))
    passed(here, there, np.ones(APART))  # the first is still in use
    assert (len(here._mine), first[0]) == (2, 0)
    del first
    gc.collect()
    passed(there, here, "anything")  # tells
    third = passed(here, there, np.full(APART + 10, 3.0))  # a little longer fits too
    assert (len(here._mine), len(here._free)) == (2, 1)
    assert third[-1] == 3


def test_memories_are_few_and_what_stays_has_its_own():
    here, there = ends()
    kept = [passed(here, there, np.full(APART, n)) for n in range(pipes.MOST_MEMORIES + 3)]
    assert len(here._mine) == pipes.MOST_MEMORIES
    assert [int(one[-1]) for one in kept] == list(range(len(kept)))
    here, there = ends()
    passed(here, there, np.zeros(APART), passing=False)
    assert not here._mine


def test_only_little_goes_through_the_pipe(monkeypatch):
    here, there = ends()
    sizes = []
    send = here.pipe.send_bytes
    monkeypatch.setattr(here.pipe, "send_bytes", lambda blob: sizes.append(len(blob)) or send(blob))
    passed(here, there, [list(range(100_000)), np.zeros(10 * APART), b"y" * 100_000])
    assert max(sizes) < pipes.SMALL + 1000
    assert len(pickle.dumps(list(range(100_000)))) > pipes.SMALL
