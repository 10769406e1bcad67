import os
import sys

import pytest
import torch

from acclimate.cli import main
from acclimate.engine.executor import Processes


@pytest.fixture(autouse=True, scope="session")
def _folders(tmp_path_factory):
    """Nothing of a test run touches the user's cache; what is decoded once serves all tests, in all processes of it."""
    before = {name: os.environ.get(name) for name in ("ACCLIMATE_CACHE", "ACCLIMATE_RUNS")}
    base = tmp_path_factory.getbasetemp()
    whole = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    os.environ["ACCLIMATE_CACHE"] = str(whole / "cache")
    os.environ.pop("ACCLIMATE_RUNS", None)
    yield
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def two_workers():
    """Two real processes, shared by all tests."""
    with Processes(2) as executor:
        yield executor


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """Run the command line in an empty folder; returns exit code, output, errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)  # of whoever started the tests

    def invoke(*words):
        monkeypatch.setattr(sys, "argv", ["acclimate", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return invoke
