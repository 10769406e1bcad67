"""Killed in training, in calibration and in the middle of streams, an experiment ends as if nothing had been."""

import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

EXPERIMENT = """
name: killed
scenario:
  {name: twofold, size: 18, source_clients: 4, per_source: 40, test_clients: 4, major: 12, minor: 1, new: false,
   availability: {probability: 0.8, burst: 2, late: 0.1}}
model: shallow-cnn
phases: [{name: scaffold, rounds: 30, cohort: 3, local: {lr: 0.05}}]
systems:
  - {name: bbse, phases: [{name: bbse, rounds: 60, cohort: 2}], adapter: bbse}
  - {name: tent, adapter: {name: tent, lr: 0.01}}
  - fedamp+tent
  - {name: seldom, adapter: tent, aggregator: tsa, test: {sync_every: 3}}
test: {batch_size: 2}
seeds: [0]
"""


def start(folder, workers):
    environment = {
        **os.environ,
        "ACCLIMATE_CACHE": str(folder / "cache"),
        "ACCLIMATE_COMMIT_SECONDS": "0",  # every slot, so that a kill can land between any two
    }
    command = [sys.executable, "-m", "acclimate", "run", "killed.yaml", "--runs", "runs", "--workers", str(workers)]
    return subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored where tests run in the background
    )


def read(path, sql):
    if not path.exists():
        return 0
    try:
        db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            return db.execute(sql).fetchone()[0] or 0
        finally:
            db.close()
    except sqlite3.OperationalError:  # not yet written
        return 0


def rounds(folder, training):
    """How many rounds the training (or the calibration) has finished."""
    paths = list(folder.glob("cache/phases/*/*.sqlite"))  # once: the run beside us may be making another
    own = [path for path in paths if (read(path, "SELECT count(*) FROM client") > 0) == training]
    return max([read(path, "SELECT max(round) FROM server") for path in own], default=0)


def slots(folder, system):
    store = folder / "runs" / "store.sqlite"
    return read(store, f"SELECT count(*) FROM row WHERE phase = 'test' AND system = '{system}' AND metric = 'correct'")


def results(folder):
    """Everything in the store but measured times, and every bit of the trained states."""
    db = sqlite3.connect(folder / "runs" / "store.sqlite")
    rows = db.execute("SELECT * FROM row WHERE metric != 'seconds' ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 10").fetchall()
    figures = db.execute("SELECT * FROM figure ORDER BY 1, 2, 3, 4, 5, 6, 7").fetchall()
    notes = db.execute("SELECT * FROM note WHERE name NOT LIKE '%seconds%' ORDER BY 1, 2, 3, 4").fetchall()
    db.close()
    states = {}
    for path in folder.glob("cache/phases/*/*.sqlite"):
        db = sqlite3.connect(path)
        states[path.parent.name] = [
            db.execute(f"SELECT * FROM {t} ORDER BY 1, 2").fetchall() for t in ("server", "client")
        ]
        db.close()
    return rows, figures, notes, states


@pytest.fixture
def folders(tmp_path):
    made = [tmp_path / "undisturbed", tmp_path / "killed"]
    for folder in made:
        folder.mkdir()
        (folder / "killed.yaml").write_text(EXPERIMENT)
    return made


def wait(process, reached, seconds=120):
    """Until something is reached or the process has ended by itself."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and process.poll() is None and not reached():
        time.sleep(0.002)


@pytest.mark.parametrize("times", [4, pytest.param(12, marks=pytest.mark.slow)])
def test_killed_again_and_again_an_experiment_ends_in_the_same_results(folders, times):
    undisturbed, killed = folders
    process = start(undisturbed, workers=1)
    assert process.wait(300) == 0, process.stderr.read().decode()
    process.stderr.close()

    places = [lambda n=n: rounds(killed, training=True) >= n for n in (1, 9, 17, 25)]
    places += [lambda n=n: rounds(killed, training=False) >= n for n in (10, 35)]
    places += [lambda: slots(killed, "bbse") >= 5, lambda: slots(killed, "tent") >= 20]
    places += [lambda n=n: slots(killed, "fedamp+tent") >= n for n in (3, 50)]
    places += [lambda n=n: slots(killed, "seldom") >= n for n in (3, 50)]
    every = len(places) // times
    for number, reached in enumerate(places[every - 1 :: every]):
        process = start(killed, workers=1 + number % 2)
        wait(process, reached)
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, process.stderr.read().decode()  # it was still at work
        process.stderr.close()
    process = start(killed, workers=2)
    assert process.wait(300) == 0, process.stderr.read().decode()
    process.stderr.close()
    ours, theirs = results(killed), results(undisturbed)
    assert len(ours[0]) > 1000
    assert ours == theirs


def test_interrupted_an_experiment_says_how_to_go_on(folders):
    folder = folders[0]
    process = start(folder, workers=2)
    wait(process, lambda: rounds(folder, training=True) >= 2)
    os.killpg(process.pid, signal.SIGINT)  # what Ctrl-C does: parent and workers get it
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "acclimate run killed.yaml" in error.decode()
    assert "Traceback" not in error.decode()
    assert rounds(folder, training=True) >= 2


def test_asked_to_end_while_nothing_was_begun_says_that_it_was_asked():
    """Found by the chaos suite: outside a run's own work SIGTERM was taken for Ctrl-C."""
    code = """
import os, signal
from acclimate import cli
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job is started without
cli._run_name = lambda *_: os.kill(os.getpid(), {})
cli.main()
"""
    for sent, told in (("signal.SIGTERM", 143), ("signal.SIGINT", 130)):
        command = [sys.executable, "-c", code.format(sent), "run", "quickstart"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (ended.returncode, "Traceback" in ended.stderr) == (told, False), ended.stderr
