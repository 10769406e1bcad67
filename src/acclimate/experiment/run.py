"""Running an experiment, or what is left of it."""

from __future__ import annotations

import shutil
import warnings
from contextlib import closing
from pathlib import Path

import yaml

from acclimate.data.folders import write_whole
from acclimate.engine.executor import Executor, Serial
from acclimate.errors import Damage
from acclimate.experiment.experiment import Experiment
from acclimate.experiment.listener import Listener, Silent
from acclimate.experiment.lock import lock
from acclimate.experiment.predictions import write_predictions
from acclimate.experiment.session import AGAIN, Session, data_of
from acclimate.experiment.versions import versions
from acclimate.store.database import Store

STORE = "store.sqlite"


def run(
    experiment: Experiment,
    runs: Path,
    *,
    executor: Executor | None = None,
    reuse: bool = False,
    listener: Listener | None = None,
) -> int:
    """Run an experiment, or what is left of it; returns its id in the store `runs/store.sqlite`."""
    folder = runs / experiment.run_name
    with lock(folder / "lock"):
        text = yaml.safe_dump(experiment.plain(), sort_keys=False)
        write_whole(folder / "experiment.yaml", lambda file: file.write(text.encode()))
        with closing(Store(runs / STORE)) as store:
            id = store.run(experiment.run_name, experiment.plain(), versions())
            for written, file in experiment.imports.items():
                (listener or Silent()).say(f"imported {file} for '{written}'")
            store.note(id, "", -1, "imports", dict(experiment.imports))
            stored = next(run for run in store.runs() if run.id == id)
            session = Session(experiment, store, id, executor or Serial(), reuse, listener or Silent())
            session.remember_code()
            try:
                for number, seed in enumerate(experiment.seeds, 1):
                    session.seed(seed, f"seed {seed} ({number}/{len(experiment.seeds)})")
                    for path in write_predictions(stored, experiment, seed, folder):
                        session.listener.say(f"predictions of images without labels: {path}")
            except Exception:
                if not store.has_measured(id):  # a failed start, such as missing data, leaves no run behind
                    store.delete(experiment.run_name)
                    shutil.rmtree(folder)
                raise
            store.finish(id)
    return id


def tell_if_changed(experiment: Experiment, runs: Path) -> None:
    """A finished run stays as it is; whoever has since changed images of their own is told so (`Damage`)."""
    with closing(Store(runs / STORE)) as store:
        found = store.find(experiment.run_name)
        before = found.checksums() if found and found.of_own_data else {}
    if before and before != data_of(experiment, experiment.seeds[0]):
        warnings.warn(
            f"the images have changed since: these results are of what they were; {AGAIN}", Damage, stacklevel=2
        )


def is_finished(experiment: Experiment, runs: Path) -> bool:
    """Whether everything asked for was measured already."""
    if not (runs / STORE).exists():
        return False
    with closing(Store(runs / STORE)) as store:
        return any(run.name == experiment.run_name and run.finished for run in store.runs())
