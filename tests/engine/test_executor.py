import os
import pickle
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import battery
import toys
from acclimate.engine import executor as module
from acclimate.engine.executor import Processes, Serial, in_order
from acclimate.engine.pipes import Wire
from acclimate.engine.worker import HAS_SERVER
from acclimate.errors import ConfigError, MissingData, WorkerFailed, WorkerLost
from acclimate.experiment.catalog import PHASES
from acclimate.trees import Shared


class Task(NamedTuple):
    """What to do, perhaps once only, and with what."""

    word: object
    parcel: Shared | None = None
    once: Path | None = None  # a file that says it was done before


@dataclass(frozen=True)
class Deeds:
    """Does what it is told; a chunk is folded to the list of its results."""

    prefix: str = ""

    def open(self, clients):
        return Doing(self.prefix)


class Doing:
    def __init__(self, prefix):
        self.prefix, self.met = prefix, []

    def do(self, task):
        if task.once is not None and task.once.exists():
            return f"{self.prefix}{task.word} again"
        if task.once is not None:
            task.once.touch()
        if task.word == "raise":
            raise ZeroDivisionError("by zero")
        if task.word == "mendable":
            raise ConfigError(["one", "two"], "here")
        if task.word in ("die", "stop"):
            os.kill(os.getpid(), signal.SIGKILL if task.word == "die" else signal.SIGSTOP)
        if task.word == "where":
            return os.getpid()
        if task.word == "born":
            return os.environ.get("BORN"), os.getppid(), signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        if task.parcel is not None:
            self.met.append(task.parcel.read())
            return id(task.parcel.read()), len({id(nest) for nest in self.met}), os.getpid()
        return f"{self.prefix}{task.word}"

    def fold(self, results):
        return [result for _, result in results]


def each(*words):
    return [[Task(word)] for word in words]


@pytest.fixture
def workers():
    with Processes(2) as executor:
        executor.meet(toys.population())
        executor.install(Deeds("x"))
        yield executor


@pytest.mark.parametrize("make", [Serial, lambda: Processes(2)])
def test_executors_return_what_is_left_of_every_chunk_with_its_position(make):
    executor = make()
    executor.meet(toys.population())
    executor.install(Deeds("x"))
    assert dict(executor.run(each(*range(20)))) == {i: [f"x{i}"] for i in range(20)}
    executor.install(Deeds("y"))
    assert list(in_order(executor.run([[Task(1), Task(2)], [Task(3)]]))) == [["y1", "y2"], ["y3"]]
    if isinstance(executor, Processes):
        executor.close()


def test_chunks_with_the_same_home_meet_the_same_worker(workers):
    homes = [5, 0, 1, 0, 5, 4, 1, 0]
    for _ in range(2):
        found = dict(workers.run(each(*["where"] * len(homes)), homes))
        where = {home: {found[i][0] for i, other in enumerate(homes) if other == home} for home in homes}
        assert all(len(pids) == 1 for pids in where.values())
        assert where[0] == where[4] != where[1] == where[5]


def test_workers_come_from_one_server_with_the_environment_of_their_own_start_and_leave_ctrl_c_to_the_parent(
    workers, monkeypatch
):
    monkeypatch.delenv("BORN", raising=False)
    (((_, server, _),),) = dict(workers.run(each("born"))).values()
    workers.close()
    for born in ("once", "again"):
        monkeypatch.setenv("BORN", born)
        assert set(map(tuple, dict(workers.run(each("born", "born"))).values())) == {((born, server, True),)}
        workers.close()
    assert (server == os.getpid()) != HAS_SERVER


def test_in_order_holds_early_results_back():
    assert list(in_order([(2, "c"), (0, "a"), (1, "b")])) == ["a", "b", "c"]


def test_processes_pass_errors_on(workers):
    with pytest.raises(WorkerFailed, match="ZeroDivisionError: by zero"):
        list(workers.run(each("raise")))
    with pytest.raises(ConfigError, match="here has 2 problem") as error:
        list(workers.run(each(1, "mendable", 2)))
    assert error.value.problems == ["one", "two"]
    assert dict(workers.run(each(1))) == {0: ["x1"]}  # and go on afterwards


def test_processes_name_a_worker_that_dies_again_and_again(workers):
    with pytest.raises(WorkerFailed, match=r"died \(exit code -9\), as did those before.*run the same command again"):
        list(workers.run(each("die")))
    assert dict(workers.run(each(1))) == {0: ["x1"]}


@pytest.mark.parametrize("fate", ["die", "stop"])
def test_the_chunk_of_a_worker_that_dies_or_is_stopped_is_done_again(workers, tmp_path, monkeypatch, fate):
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.1)
    before = {worker.process.pid for worker in workers._workers}
    chunks = [[Task(1)], [Task(2), Task(fate, once=tmp_path / "done")], [Task(3)], [Task(4)]]
    found = dict(workers.run(chunks))
    assert found == {0: ["x1"], 1: ["x2", f"x{fate} again"], 2: ["x3"], 3: ["x4"]}
    after = {worker.process.pid for worker in workers._workers}
    assert len(before & after) == 1  # one was replaced
    assert not any(Path(f"/proc/{pid}").exists() for pid in before - after)


@pytest.mark.parametrize("fate", ["die", "stop"])
def test_all_chunks_that_a_worker_had_are_done_again(workers, tmp_path, monkeypatch, fate):
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.1)
    chunks = each(*range(9))
    chunks[2] = [Task(fate, once=tmp_path / "done")]
    found = dict(workers.run(iter(chunks), count=len(chunks)))  # several travel together, and one batch waits
    assert found == {i: [f"x{fate} again" if i == 2 else f"x{i}"] for i in range(9)}
    assert sum(workers.worked.values()) == 9


def test_chunks_that_travel_together_pass_errors_on(workers):
    with pytest.raises(ConfigError, match="here has 2 problem"):
        list(workers.run(each(*range(5), "mendable", *range(5)), count=11))
    assert dict(workers.run(each(*range(7)), [0, 1, 0, 1, 0, 0, 0], 7)) == {i: [f"x{i}"] for i in range(7)}


def test_where_workers_keep_something_a_death_is_told_and_all_start_anew(workers, tmp_path):
    before = {worker.process.pid for worker in workers._workers}
    chunks = [[Task(1)], [Task("die", once=tmp_path / "done")]]
    with pytest.raises(WorkerLost, match="what it kept is gone"):
        list(workers.run(chunks, [0, 1]))
    assert dict(workers.run(chunks, [0, 1])) == {0: ["x1"], 1: ["xdie again"]}
    assert not before & {worker.process.pid for worker in workers._workers}


def test_a_shared_parcel_travels_to_a_worker_once_and_is_opened_once(workers, monkeypatch):
    sent = []
    monkeypatch.setattr(Shared, "seal", lambda self: sent.append(self.key) or Shared.blob.__get__(self))
    parcel, lasting = Shared({"w": torch.ones(1000)}), Shared(torch.ones(3), lasting=True)
    for _ in range(2):
        for one in (parcel, lasting):
            for _, ((_, different, _),) in workers.run([[Task("", one)] for _ in range(6)], [0, 1] * 3):
                assert different <= 2
    assert sorted(sent) == sorted([parcel.key, lasting.key] * 2)  # two workers
    for number in range(20):  # many others pass by: the lasting one stays, the other is forgotten at both ends
        list(workers.run([[Task("", Shared(torch.tensor(number)))]], [0]))
    sent.clear()
    list(workers.run([[Task("", parcel), Task("", lasting)]], [0]))
    assert sent == [parcel.key]


def test_errors_survive_the_trip_from_a_worker():
    assert str(pickle.loads(pickle.dumps(MissingData("gone")))) == "gone"


# Bytes through the pipes in one round of four clients, before messages were made on the server.
BEFORE = {"fedavg": (495092, 1978216), "fedavgm": (984212, 1978216), "scaffold": (1962572, 4911728)}
SLACK = 1.002  # names and reasons, no tensors


@pytest.mark.parametrize("name", BEFORE)
def test_a_round_sends_no_more_than_it_has_to(name, monkeypatch):
    count = {"down": 0, "up": 0}
    send, receive = Connection.send_bytes, Connection.recv_bytes

    def counted_send(pipe, blob):
        count["down"] += len(blob)
        send(pipe, blob)

    def counted_receive(pipe):
        blob = receive(pipe)
        count["up"] += len(blob)
        return blob

    written, mapped = Wire._written, Wire._mapped

    def counted_written(wire, blob, passing):
        count["down"] += len(blob)
        return written(wire, blob, passing)

    def counted_mapped(wire, number, size, new):
        count["up"] += size
        return mapped(wire, number, size, new)

    monkeypatch.setattr(Connection, "send_bytes", counted_send)
    monkeypatch.setattr(Connection, "recv_bytes", counted_receive)
    monkeypatch.setattr(Wire, "_written", counted_written)
    monkeypatch.setattr(Wire, "_mapped", counted_mapped)
    after = {}
    with Processes(2) as executor:
        for rounds in (1, 3):
            count.update(down=0, up=0)
            battery.run_algorithm(PHASES[name].load()(), rounds=rounds, cohort=4, seed=5, executor=executor)
            after[rounds] = dict(count)
    down, up = ((after[3][way] - after[1][way]) // 2 for way in ("down", "up"))
    assert 0 < down <= SLACK * BEFORE[name][0]
    assert 0 < up <= SLACK * BEFORE[name][1]
