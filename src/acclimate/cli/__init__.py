"""The command line: parses and prints, nothing else. Heavy imports wait until a command needs them."""

from __future__ import annotations

import errno
import json
import os
import signal
import sqlite3
import sys
import warnings
from collections.abc import Callable, Mapping
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acclimate.cli.data import data, listed
from acclimate.cli.printing import Json, print_rows
from acclimate.errors import AcclimateError, ConfigError, nearest, shown
from acclimate.options import LARGEST_SEED
from acclimate.version import __version__

if TYPE_CHECKING:
    from acclimate.experiment.experiment import Experiment
    from acclimate.experiment.published import Published

app = typer.Typer(
    help="Train a model across clients that keep their data, then let it adapt, without labels, to wherever it lands.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data, name="data")

Runs = Annotated[Path, typer.Option("--runs", envvar="ACCLIMATE_RUNS", help="Folder of the runs and their store.")]
Workers = Annotated[int | None, typer.Option(min=1, help="Worker processes; by default one per core.")]
Reuse = Annotated[bool, typer.Option("--reuse", help="Accept phases trained by older code; the table says so.")]
DEFAULT_RUNS = Path("runs")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"acclimate {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


@app.command()
def run(
    experiment: Annotated[str, typer.Argument(help="A YAML file, or the name of a shipped experiment (quickstart).")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="KEY=VALUE, such as seeds=[0] phases.0.rounds=50.")
    ] = None,
    workers: Workers = None,
    runs: Runs = DEFAULT_RUNS,
    reuse: Reuse = False,
    as_json: Json = False,
) -> None:
    """Run an experiment, going on where it stopped; print its table."""
    from acclimate.experiment.reader import read
    from acclimate.experiment.run import is_finished

    read_experiment = read(experiment, overrides or [])
    if not is_finished(read_experiment, runs):
        again = " ".join(["acclimate", "run", experiment, *(overrides or [])])
        try:
            _work(read_experiment, runs, workers, reuse)
        except KeyboardInterrupt as stop:
            typer.echo(f"\nStopped. Everything finished so far is saved; go on with:\n  {again}", err=True)
            raise typer.Exit(_code(stop)) from None
    _print_table(runs, read_experiment.run_name, as_json)


@app.command(name="list")
def list_(
    what: Annotated[str, typer.Argument(help="methods, scenarios, models, data, experiments or runs.")] = "methods",
    runs: Runs = DEFAULT_RUNS,
    as_json: Json = False,
) -> None:
    """List what there is."""
    kinds: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "methods": lambda: _entries("training", "calibration", "adapters", "aggregators", "terms"),
        "scenarios": lambda: _entries("scenarios"),
        "models": lambda: _entries("models"),
        "data": listed,
        "experiments": _experiments,
        "runs": lambda: _runs(runs),
    }
    if what not in kinds:
        raise AcclimateError(f"list what? '{what}' is unknown; {nearest(what, kinds)}")
    print_rows(kinds[what](), as_json)


@app.command()
def show(
    name: Annotated[str, typer.Argument(help="A method, scenario, model, shipped experiment or run; or 'scenario'.")],
    more: Annotated[
        list[str] | None, typer.Argument(help="After 'scenario': its name and options, such as ttpfl shift=label.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, max=LARGEST_SEED, help="The seed of the population of 'show scenario'.")
    ] = 0,
    runs: Runs = DEFAULT_RUNS,
    as_json: Json = False,
) -> None:
    """Show what something is, with its options; the table of a run; or, with 'scenario NAME', who meets what when."""
    from acclimate.cli.describe import describe
    from acclimate.experiment.catalog import ROOMS, shipped

    if name == "scenario":
        typer.echo(_picture(more or [], seed))
        return
    found = [(room, table[name]) for room, table in ROOMS.items() if name in table]
    experiments = shipped()
    if found:
        described = [describe(name, room, entry) for room, entry in found]
        typer.echo(json.dumps(described, indent=2) if as_json else "\n\n".join(item["text"] for item in described))
    elif name in experiments:
        content = experiments[name].read_text(encoding="utf-8")
        typer.echo(json.dumps({"name": name, "yaml": content}) if as_json else content)
    else:
        known = [n for table in ROOMS.values() for n in table] + list(experiments)
        _print_table(runs, _find_run(runs, name, known), as_json)


@app.command()
def report(
    run: Annotated[list[str], typer.Argument(help="Runs: a folder, or a unique beginning of a name.")],
    runs: Runs = DEFAULT_RUNS,
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of the terminal.")] = None,
) -> None:
    """Report on one or more runs, as text."""
    from acclimate.report.table import table
    from acclimate.report.text import text

    parts = []
    for name in run:
        store, found = _open_run(runs, _find_run(runs, name, []))
        parts.append(text(table(store, found), found))
        store.close()
    content = "\n".join(parts)
    if out is None:
        typer.echo(content)
    elif out.exists():
        raise AcclimateError(f"{out} exists already and is not overwritten; choose another name, or remove it")
    else:
        out.write_text(content, encoding="utf-8")
        typer.echo(f"written to {out}")


@app.command()
def figures(
    run: Annotated[list[str], typer.Argument(help="Runs: a folder, or a unique beginning of a name.")],
    out: Annotated[Path | None, typer.Option(help="Folder to write to; by default 'figures' in the run's own.")] = None,
    slot: Annotated[int | None, typer.Option(help="Slot of the matrices; by default the last of all systems.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of matrices and weights; by default the first.")] = None,
    client: Annotated[int | None, typer.Option(help="Whose weights over time; by default the first client's.")] = None,
    runs: Runs = DEFAULT_RUNS,
) -> None:
    """Draw runs as SVG files: accuracy over time, who listened to whom, and ATP's rates, which compare all runs."""
    from acclimate.data.folders import write_whole
    from acclimate.report.figures import WANTED, draw

    names = list(dict.fromkeys(_find_run(runs, name, []) for name in run))
    opened = [_open_run(runs, name) for name in names]
    drawn = draw(opened[0][0], [found for _, found in opened], slot=slot, seed=seed, client=client)
    for store, _ in opened:
        store.close()
    for name, pictures in drawn.items():
        for file, content in pictures.items():
            path = (out or runs / name / "figures") / file
            write_whole(path, methodcaller("write", content.encode()))
            typer.echo(f"written: {path}")
        if not pictures:
            typer.echo(f"{name}: nothing to draw; {WANTED}", err=True)


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="A published table, such as atp-table5.")],
    only: Annotated[list[str] | None, typer.Option(help="One of its pieces (may be repeated); by default all.")] = None,
    docs: Annotated[Path, typer.Option(help="Where reproduction.md and results/ are written.")] = Path("docs"),
    workers: Workers = None,
    runs: Runs = DEFAULT_RUNS,
    reuse: Reuse = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="Run nothing; write again what was measured.")] = False,
) -> None:
    """Run the experiments of a published table and write them beside the paper's values, piece by piece."""
    from acclimate.experiment.published import met, published
    from acclimate.experiment.run import is_finished

    paper = published(name)
    unknown = [piece for piece in only or [] if piece not in paper.pieces]
    if unknown:
        raise AcclimateError(f"{name} has no piece '{unknown[0]}'; {nearest(unknown[0], paper.pieces)}")
    experiments = paper.experiments()
    for piece in [] if no_run else only or list(paper.pieces):
        if not is_finished(experiments[piece], runs):
            if unmet := list(paper.unmet(piece, met(experiments[piece]))):  # before hours of work, not after
                raise ConfigError(unmet, f"the published table '{name}'")
            try:
                _work(experiments[piece], runs, workers, reuse)
            except KeyboardInterrupt as stop:
                typer.echo("\nStopped. Everything finished so far is saved; run the same command to go on.", err=True)
                raise typer.Exit(_code(stop)) from None
        _write_page(paper, experiments, runs, docs)
    if no_run:
        _write_page(paper, experiments, runs, docs)


def _write_page(paper: Published, experiments: Mapping[str, Experiment], runs: Path, docs: Path) -> None:
    from acclimate.experiment.run import is_finished
    from acclimate.report.reproduction import write

    done = {piece: _open_run(runs, e.run_name) for piece, e in experiments.items() if is_finished(e, runs)}
    for path in write(paper, done, docs):
        typer.echo(f"written: {path}")
    for store, _ in done.values():
        store.close()


def main() -> None:
    """The entry point: errors a user can mend are messages, not tracebacks."""
    signal.signal(signal.SIGTERM, _terminate)
    warnings.showwarning = _warn
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except AcclimateError as error:
        _fail(f"{type(error).__name__}: {error}")
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(141)
        _fail(_told(error))
    except sqlite3.Error as error:
        _fail(_told(error))
    except Exception as error:
        from click.exceptions import Abort, ClickException

        if isinstance(error, ClickException):
            error.show()
            sys.exit(2)
        if isinstance(error, Abort):
            sys.exit(130)
        raise


class _Terminated(KeyboardInterrupt):
    """Somebody has asked the process to end (SIGTERM): like Ctrl-C, what was finished is saved."""


def _terminate(*_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending already
    raise _Terminated


def _code(stop: KeyboardInterrupt) -> int:
    """The exit code of a process that was stopped."""
    return 143 if isinstance(stop, _Terminated) else 130


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    typer.echo(f"note: {shown(message)}", err=True)


def _told(error: OSError | sqlite3.Error) -> str:
    """What a machine could not do, and what to do about it."""
    if getattr(error, "errno", None) == errno.ENOSPC or "disk is full" in str(error):
        return "disk full: make room and run the same command again; what was finished is saved"
    if isinstance(error, OSError):
        return f"{error.strerror or type(error).__name__}: {error.filename or error}; choose another place, or mend it"
    return f"{type(error).__name__}: {error}; the file may be damaged, or of another program"


def _fail(message: str) -> None:
    typer.echo(shown(message), err=True)
    sys.exit(2)


def _work(experiment: Experiment, runs: Path, workers: int | None, reuse: bool) -> None:
    from rich.console import Console

    from acclimate.cli.progress import Bars, Lines
    from acclimate.engine.executor import Processes, Serial, cores
    from acclimate.experiment.run import run

    console = Console(stderr=True)
    number = workers or cores()
    console.print(f"run {experiment.run_name} in {runs}, {number} worker(s)", highlight=False, soft_wrap=True)
    with (Bars if console.is_terminal else Lines)(console) as listener:
        if number == 1:
            run(experiment, runs, executor=Serial(), reuse=reuse, listener=listener)
        else:
            with Processes(number) as executor:
                run(experiment, runs, executor=executor, reuse=reuse, listener=listener)


def _picture(words: list[str], seed: int) -> str:
    """A scenario of the catalog, drawn."""
    from acclimate.experiment.catalog import SCENARIOS
    from acclimate.experiment.schema import check
    from acclimate.experiment.written import Unreadable, load
    from acclimate.scenarios.picture import picture

    name, *options = words or [""]
    if name not in SCENARIOS:
        raise ConfigError([f"unknown scenario '{name}'; {nearest(name, SCENARIOS)}"], "show scenario")
    target = SCENARIOS[name].load()
    try:
        given = {key: load(value) for key, _, value in (option.partition("=") for option in options)}
    except Unreadable as error:
        raise ConfigError([str(error)], "show scenario") from error
    values, _, problems = check(target, given, name)
    if problems:
        raise ConfigError(problems, "show scenario")
    return picture(target(**values).build(seed))


def _print_table(runs: Path, name: str, as_json: bool) -> None:
    from rich.console import Console

    from acclimate.report.table import table
    from acclimate.report.text import render

    store, found = _open_run(runs, name)
    result = table(store, found)
    store.close()
    if as_json:
        typer.echo(json.dumps(result.plain(), indent=2))
    else:
        console = Console()
        # Without a terminal nobody can widen it, so nothing may be cut off.
        Console(width=None if console.is_terminal else 160).print(render(result))


def _open_run(runs: Path, name: str) -> tuple[Any, dict[str, Any]]:
    from acclimate.store.database import Store

    store = Store(runs / "store.sqlite")
    return store, next(run for run in store.runs() if run["name"] == name)


def _find_run(runs: Path, name: str, also: list[str]) -> str:
    """A run by its folder or a unique beginning of its name."""
    names = [row["name"] for row in _runs(runs)]
    wanted = Path(name).name
    matches = [n for n in names if n == wanted] or [n for n in names if n.startswith(wanted)]
    if len(matches) == 1:
        return str(matches[0])
    if matches:
        raise AcclimateError(f"'{name}' could be any of: {', '.join(matches)}; write more of the name")
    raise AcclimateError(f"'{name}' is unknown here (runs are looked for in {runs}); {nearest(name, [*names, *also])}")


def _runs(runs: Path) -> list[dict[str, Any]]:
    from acclimate.store.database import Store

    if not (runs / "store.sqlite").exists():
        return []
    store = Store(runs / "store.sqlite")
    try:
        return [{key: run[key] for key in ("name", "started", "finished")} for run in store.runs()]
    finally:
        store.close()


def _entries(*rooms: str) -> list[dict[str, Any]]:
    from acclimate.experiment.catalog import ROOMS

    return [
        {"name": name, "room": room, "summary": entry.summary, "paper": entry.paper}
        for room in rooms
        for name, entry in ROOMS[room].items()
    ]


def _experiments() -> list[dict[str, Any]]:
    from acclimate.experiment.catalog import shipped

    return [{"name": name, "file": path.name} for name, path in shipped().items()]
