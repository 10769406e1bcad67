"""Runs on the command line: which one a name means, what there is, and `acclimate runs delete`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acclimate.cli.printing import Commands
from acclimate.errors import AcclimateError, nearest

if TYPE_CHECKING:
    from acclimate.store.run import Run

Runs = Annotated[Path, typer.Option("--runs", envvar="ACCLIMATE_RUNS", help="Folder of the runs and their store.")]
DEFAULT_RUNS = Path("runs")
NAMED = "A folder, a run's name or its beginning; the name of an experiment means its latest run."

commands = Commands(help="Runs: take away what is no longer needed ('acclimate list runs' lists them).")


@commands.callback(no_args_is_help=True)
def _root() -> None:
    pass


@commands.command()
def delete(
    run: Annotated[list[str], typer.Argument(help=NAMED)],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    runs: Runs = DEFAULT_RUNS,
) -> None:
    """Delete runs: their folders and all they measured. Trained models stay in the cache."""
    from acclimate.experiment.lock import lock
    from acclimate.store.database import Store

    names = list(dict.fromkeys(find(runs, name) for name in run))
    if not yes:
        _confirm(names)
    store = Store(runs / "store.sqlite")
    try:
        for name in names:
            with lock(runs / name / "lock"):  # nobody works on it
                store.delete(name)
                shutil.rmtree(runs / name)
            typer.echo(f"deleted: {name}")
    finally:
        store.close()


def find(runs: Path, name: str, also: Sequence[str] = ()) -> str:
    """The run that is meant: by its folder, the name of its experiment (the latest one) or a beginning of either.

    `also`: other things that may have been meant, for suggestions.
    """
    rows, wanted = listed(runs), Path(name).name
    if any(row["name"] == wanted for row in rows):
        return wanted
    latest = {row["short name"]: str(row["name"]) for row in rows if row["short name"]}
    if wanted in latest:
        return latest[wanted]
    # A beginning that reaches into the digest means one run, a shorter one all runs of the experiments it fits.
    begun = [short for short in latest if short.startswith(wanted)]
    matches = [latest[short] for short in begun] or [row["name"] for row in rows if row["name"].startswith(wanted)]
    if len(matches) == 1:
        return str(matches[0])
    if matches:
        raise AcclimateError(f"'{name}' could be any of: {', '.join(begun or matches)}; write more of the name")
    known = [*(row["name"] for row in rows), *latest, *also]
    raise AcclimateError(f"'{name}' is unknown here (runs are looked for in {runs}); {nearest(name, known)}")


def listed(runs: Path) -> list[dict[str, Any]]:
    """All runs, oldest first; the latest of an experiment can be called by the experiment's name."""
    from acclimate.store.database import Store

    if not (runs / "store.sqlite").exists():
        return []
    store = Store(runs / "store.sqlite")
    try:
        found = store.runs()
    finally:
        store.close()
    latest = {run.experiment["name"]: run.name for run in found}
    return [
        {
            "name": run.name,
            "short name": short if latest[short := run.experiment["name"]] == run.name else None,
            "started": run.started,
            "finished": run.finished,
        }
        for run in found
    ]


def is_finished(runs: Path, name: str) -> bool:
    """Whether everything asked of a run was measured already."""
    return any(row["name"] == name and row["finished"] for row in listed(runs))


def is_of_own_data(runs: Path, name: str) -> bool:
    """Whether a run is of images of the user's, which may have changed since."""
    with opened(runs, [name]) as (run,):
        return run.of_own_data


@contextmanager
def opened(runs: Path, names: Sequence[str]) -> Iterator[list[Run]]:
    """Runs by their whole names, for as long as they are read."""
    from acclimate.store.database import Store

    if not names:  # then there may be no store either
        yield []
        return
    store = Store(runs / "store.sqlite")
    try:
        found = {run.name: run for run in store.runs()}
        yield [found[name] for name in names]
    finally:
        store.close()


def _confirm(names: Sequence[str]) -> None:
    if not sys.stdin.isatty():
        raise AcclimateError(f"about to delete {', '.join(names)}; say --yes where nobody can be asked")
    typer.confirm(f"Delete {', '.join(names)}?", abort=True)
