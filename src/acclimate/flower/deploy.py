"""Starting a run on a SuperLink, and telling whether it worked: `flwr run` says yes whatever happens."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from acclimate.errors import AcclimateError

# Flower reports home, looks for newer versions and installs what apps ask for unless it is told not to.
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
COMPLETED = "finished:completed"
WAITING = ("pending", "starting")
START_SECONDS = 60.0  # after which a run that has not begun is worth a word
NOT_BEGUN = (
    "the server of this run has not begun after {seconds:g} s. Another run may go first (`flwr list`), "
    "or the SuperLink cannot start it, and its log says why: often a certificate that does not name 127.0.0.1, where "
    "the two meet. Ctrl-C ends the waiting, not the run."
)


class FlowerFailed(AcclimateError):
    """A run on Flower that did not complete."""


def program(name: str) -> str:
    """A command of Flower's: beside this Python, else wherever it is found."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise AcclimateError(f"'{name}' is not here; install the extra: pip install 'acclimate[flower]'")
    return found


def submit(folder: Path, connection: str | None, config: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run an app on a SuperLink, showing what its server prints; raises where it did not complete."""
    flwr, where = program("flwr"), [connection] if connection else []
    options = [word for text in config for word in ("--run-config", text)]
    command = [flwr, "run", str(folder), *where, "--stream", *options]
    run_id, waiting = None, list[threading.Timer]()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment) as run:
        assert run.stdout is not None
        for line in run.stdout:
            print(line, end="", flush=True)
            if run_id is None and (found := re.search(r"run (?:id |ID )?(\d{6,})", line)):
                run_id = found[1]
                waiting.append(threading.Timer(START_SECONDS, _remind, (run_id, where, environment)))
                waiting[0].start()
    for timer in waiting:
        timer.cancel()
    if run.returncode:
        raise FlowerFailed(f"'flwr run' ended with {run.returncode}; what it printed says why")
    status = status_of(run_id, where, environment)
    if status != COMPLETED:
        raise FlowerFailed(f"the run on Flower ended as '{status}'; what its server printed says why")


def status_of(run_id: str | None, where: Sequence[str], environment: Mapping[str, str]) -> str:
    """What the SuperLink says of a run; of its latest, if it is not known which."""
    listed = subprocess.run(
        [program("flwr"), "list", *where, "--format", "json"], capture_output=True, text=True, env=environment
    )
    try:
        runs = json.loads(listed.stdout)["runs"]
        found = [run for run in runs if str(run["run-id"]) == run_id] or runs[:1]
        return str(found[0]["status"])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        told = (listed.stdout + listed.stderr).strip()[-300:]
        raise FlowerFailed(f"the SuperLink does not say how the run ended ({error}): {told}") from error


def _remind(run_id: str, where: Sequence[str], environment: Mapping[str, str]) -> None:
    """Say that a run has not begun, if so."""
    if status_of(run_id, where, environment) in WAITING:
        print(NOT_BEGUN.format(seconds=START_SECONDS), flush=True)


def quiet() -> dict[str, str]:
    """The environment for Flower's commands."""
    return {**os.environ, **{name: os.environ.get(name, value) for name, value in QUIET.items()}}
