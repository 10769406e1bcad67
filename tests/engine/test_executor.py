import os
import signal
from dataclasses import dataclass

import pytest

from acclimate.engine.executor import Processes, in_order
from acclimate.errors import ConfigError, MissingData, WorkerFailed


@dataclass(frozen=True)
class Deeds:
    """Does what it is told."""

    def prepare(self, common):
        return common.decode()

    def run(self, prepared, task):
        if task == "raise":
            raise ZeroDivisionError("by zero")
        if task == "mendable":
            raise ConfigError(["one", "two"], "here")
        if task == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if task == "where":
            return os.getpid()
        return f"{prepared}{task}"


def test_processes_return_every_result_with_its_position(two_workers):
    two_workers.install(Deeds())
    assert dict(two_workers.run(b"x", range(20))) == {i: f"x{i}" for i in range(20)}
    assert list(in_order(two_workers.run(b"y", range(20)))) == [f"y{i}" for i in range(20)]


def test_tasks_with_the_same_home_meet_the_same_worker(two_workers):
    two_workers.install(Deeds())
    homes = [5, 0, 1, 0, 5, 4, 1, 0]
    for _ in range(2):
        found = dict(two_workers.run(b"", ["where"] * len(homes), homes))
        where = {home: {found[i] for i, other in enumerate(homes) if other == home} for home in homes}
        assert all(len(workers) == 1 for workers in where.values())
        assert where[0] == where[4] != where[1] == where[5]


def test_in_order_holds_early_results_back():
    assert list(in_order([(2, "c"), (0, "a"), (1, "b")])) == ["a", "b", "c"]


def test_processes_pass_errors_on():
    with Processes(2) as executor:
        executor.install(Deeds())
        with pytest.raises(WorkerFailed, match="ZeroDivisionError: by zero"):
            list(executor.run(b"", ["raise"]))
        with pytest.raises(ConfigError, match="here has 2 problem") as error:
            list(executor.run(b"", [1, "mendable", 2]))
        assert error.value.problems == ["one", "two"]


def test_processes_name_a_worker_that_died():
    with Processes(1) as executor:
        executor.install(Deeds())
        with pytest.raises(WorkerFailed, match=r"died \(exit code -9\).*run the same command again"):
            list(executor.run(b"", ["die"]))


def test_processes_start_anew_after_a_failure():
    with Processes(1) as executor:
        executor.install(Deeds())
        with pytest.raises(WorkerFailed):
            list(executor.run(b"", ["die"]))
        executor.close()
        executor.install(Deeds())
        assert list(executor.run(b"z", [1])) == [(0, "z1")]


def test_errors_survive_the_trip_from_a_worker():
    import pickle

    assert str(pickle.loads(pickle.dumps(MissingData("gone")))) == "gone"
