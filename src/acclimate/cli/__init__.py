"""The command line: parses and prints, nothing else. Heavy imports wait until a command needs them."""

from __future__ import annotations

import errno
import json
import shlex
import signal
import sqlite3
import sys
import warnings
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acclimate.cli import flower, listing
from acclimate.cli import runs as of_runs
from acclimate.cli.data import data
from acclimate.cli.device import adapt, export
from acclimate.cli.printing import Commands, Json, print_rows, width
from acclimate.cli.report import PictureFormat
from acclimate.cli.runs import DEFAULT_RUNS, NAMED, Runs
from acclimate.cli.runs import find as _find_run
from acclimate.errors import AcclimateError, ConfigError, nearest, shown
from acclimate.options import LARGEST_SEED
from acclimate.version import __version__

if TYPE_CHECKING:
    from acclimate.experiment.experiment import Experiment
    from acclimate.experiment.published import Published

app = Commands(
    help="Train a model across clients that keep their data, then let it adapt, without labels, to wherever it lands.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data, name="data")
app.command()(export)
app.command()(adapt)
app.add_typer(of_runs.commands, name="runs")
app.add_typer(flower.commands, name="flower")


class Engine(StrEnum):
    """Who does the work of an experiment."""

    here = "here"
    flower = "flower"


Workers = Annotated[int | None, typer.Option(min=1, help="Worker processes; by default one per core.")]
Reuse = Annotated[bool, typer.Option("--reuse", help="Accept phases trained by older code; the table says so.")]


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
    engine: Annotated[Engine, typer.Option(help="Who does the work; flower: nodes of a simulation.")] = Engine.here,
    runs: Runs = DEFAULT_RUNS,
    reuse: Reuse = False,
    as_json: Json = False,
) -> None:
    """Run an experiment, going on where it stopped; print its table."""
    run_name = _run_name(experiment, overrides or []) + ("-flower" if engine is Engine.flower else "")
    goes_on = not of_runs.is_finished(runs, run_name)
    if goes_on:
        from acclimate.experiment.reader import read

        more = [] if engine is Engine.here else ["--engine", engine.value]
        again = shlex.join(["acclimate", "run", experiment, *(overrides or []), *more])
        try:
            work = _work if engine is Engine.here else _simulate
            work(read(experiment, overrides or []), runs, workers, reuse)
        except KeyboardInterrupt:
            typer.echo(f"\nStopped. Everything finished so far is saved; go on with:\n  {again}", err=True)
            raise typer.Exit(130) from None
    elif of_runs.is_of_own_data(runs, run_name):
        from acclimate.experiment.reader import read
        from acclimate.experiment.run import tell_if_changed

        tell_if_changed(read(experiment, overrides or []), runs)
    _print_table(runs, run_name, as_json)
    _write_report(runs, run_name, again=goes_on)


@app.command(name="list")
def list_(
    what: Annotated[str, typer.Argument(help=f"{listing.KINDS}.")] = "methods",
    runs: Runs = DEFAULT_RUNS,
    as_json: Json = False,
) -> None:
    """List what there is."""
    print_rows(listing.rows(what, runs), as_json)


@app.command()
def show(
    name: Annotated[
        str,
        typer.Argument(help="A method, scenario, model, shipped experiment, published table or run; or 'scenario'."),
    ],
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
    from acclimate.experiment.catalog import ROOMS, shipped, tables

    if name == "scenario":
        typer.echo(_picture(more or [], seed))
        return
    rooms = [room for room, table in ROOMS.items() if name in table]
    files = {**tables(), **shipped()}
    if rooms:
        described = _described(name, rooms)
        typer.echo(json.dumps(described, indent=2) if as_json else "\n\n".join(item["text"] for item in described))
    elif name in files:
        content = files[name].read_text(encoding="utf-8")
        if name in tables():
            content += f"# acclimate reproduce {name} sets it beside the paper's values\n"
        typer.echo(json.dumps({"name": name, "yaml": content}) if as_json else content)
    else:
        known = [n for table in ROOMS.values() for n in table] + list(files)
        _print_table(runs, _find_run(runs, name, known), as_json)


@app.command()
def report(
    run: Annotated[list[str], typer.Argument(help=NAMED)],
    runs: Runs = DEFAULT_RUNS,
    out: Annotated[Path | None, typer.Option(help="File to write to; by default report.html in the run's own.")] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print one line per system, stream and seed.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print a table for a paper (booktabs).")] = False,
    as_json: Json = False,
    as_text: Annotated[bool, typer.Option("--text", help="Print the table and what phases send.")] = False,
    pictures: Annotated[Path | None, typer.Option(help="Folder to write every picture to, as a file.")] = None,
    format: Annotated[PictureFormat, typer.Option(help="Of the files of --pictures.")] = PictureFormat.svg,
    slot: Annotated[int | None, typer.Option(help="Slot of the matrices; by default the last of all systems.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of matrices and weights; by default the first.")] = None,
    client: Annotated[int | None, typer.Option(help="Whose weights over time; by default the first client's.")] = None,
) -> None:
    """Report on one or more runs: one HTML file that needs nothing else, or tables and pictures for a paper."""
    from acclimate.cli.report import Wanted, printed, write_page, write_pictures
    from acclimate.report.pictures.picture import Asked

    names = list(dict.fromkeys(_find_run(runs, name, []) for name in run))
    wanted = [kind for kind, given in zip(Wanted, (csv, latex, as_json, as_text), strict=True) if given]
    if len(wanted) > 1:
        raise AcclimateError(f"one of {', '.join(f'--{kind.value}' for kind in wanted)} at a time, please")
    if out is not None and out.exists():
        raise AcclimateError(f"{out} exists already and is not overwritten; choose another name, or remove it")
    with of_runs.opened(runs, names) as found:
        asked = Asked(seed, slot, client)
        if pictures is not None:
            write_pictures(found, asked, pictures, format.value)
        if wanted:
            printed(found, wanted[0], out)
        elif pictures is None:
            write_page(found, asked, out or runs / names[0] / "report.html")


@app.command()
def reproduce(
    name: Annotated[str, typer.Argument(help="A published table, such as atp-table5 ('acclimate list tables').")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(help="KEY=VALUE; seeds=[1] or systems=[tent] add to what there is, others deviate."),
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="One of its pieces (may be repeated); by default all.")] = None,
    docs: Annotated[Path, typer.Option(help="Where reproduction/ and results/ are written.")] = Path("docs"),
    workers: Workers = None,
    runs: Runs = DEFAULT_RUNS,
    reuse: Reuse = False,
    no_run: Annotated[bool, typer.Option("--no-run", help="Run nothing; write again what was measured.")] = False,
    rest: Annotated[bool, typer.Option("--rest", help="Run only the rows and seeds that docs/results lacks.")] = False,
) -> None:
    """Run the experiments of a published table and write them beside the paper's values, piece by piece."""
    from acclimate.experiment.published import met, published
    from acclimate.report.reproduction import rest as rest_of

    paper = published(name)
    unknown = [piece for piece in only or [] if piece not in paper.pieces]
    if unknown:
        raise AcclimateError(f"{name} has no piece '{unknown[0]}'; {nearest(unknown[0], paper.pieces)}")
    if rest and overrides:
        raise AcclimateError("--rest chooses rows and seeds by itself; leave the overrides out, or leave --rest out")
    pieces = [] if no_run else only or list(paper.pieces)
    given = [(piece, more) for piece in pieces for more in (rest_of(paper, piece, docs) if rest else [overrides or []])]
    work = [(piece, more, paper.pieces[piece].read(more)) for piece, more in given]
    left = [one for one in work if not of_runs.is_finished(runs, one[2].run_name)]
    for number, (piece, more, experiment) in enumerate(work, 1):
        known = "" if (piece, more, experiment) in left else ", measured already"
        which = " ".join([piece, *(more if rest else [])])
        typer.echo(f"{name}, piece {number} of {len(work)}: {which}{known}", err=True)
        if not known:
            if unmet := list(paper.unmet(piece, met(experiment))):  # before hours of work, not after
                raise ConfigError(unmet, f"the published table '{name}'")
            try:
                _work(experiment, runs, workers, reuse)
            except KeyboardInterrupt:
                typer.echo("\nStopped. Everything finished so far is saved; run the same command to go on.", err=True)
                raise typer.Exit(130) from None
        if rest or not known:
            there = {p: e for p, m, e in work if m == more} if more else paper.experiments()
            _write_pages(paper, there, runs, docs, more)
    if not left and not (rest and work):
        _write_pages(paper, paper.experiments(overrides or []), runs, docs, overrides or [])


def _write_pages(
    paper: Published, experiments: Mapping[str, Experiment], runs: Path, docs: Path, overrides: Sequence[str]
) -> None:
    from acclimate.experiment.lock import lock
    from acclimate.report.reproduction import write

    names = {piece: experiment.run_name for piece, experiment in experiments.items()}
    done = {piece: name for piece, name in names.items() if of_runs.is_finished(runs, name)}
    mine = lock(docs / "results" / ".lock", wait=lambda said: typer.echo(said, err=True), does="writes the same pages")
    with mine, of_runs.opened(runs, list(done.values())) as found:
        for path in write(paper, dict(zip(done, found, strict=True)), docs, overrides):
            typer.echo(f"written: {path}")


def main() -> None:
    """The entry point: errors a user can mend are messages, not tracebacks."""
    signal.signal(signal.SIGTERM, _terminate)
    warnings.showwarning = _warn
    try:
        app()  # usage errors, Ctrl-C and broken pipes are its own business
    except SystemExit as end:
        if end.code == 130 and signal.getsignal(signal.SIGTERM) is signal.SIG_IGN:  # it was not Ctrl-C
            raise SystemExit(143) from None
        raise
    except AcclimateError as error:
        _fail(f"{type(error).__name__}: {error}")
    except (OSError, sqlite3.Error) as error:
        _fail(_told(error))


def _terminate(*_: object) -> None:
    """Somebody has asked the process to end (SIGTERM): like Ctrl-C, what was finished is saved."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it is ending already
    raise KeyboardInterrupt


def _warn(message: Warning | str, *_: object, **__: object) -> None:
    typer.echo(f"note: {shown(message)}", err=True)


def _told(error: OSError | sqlite3.Error) -> str:
    """What a machine could not do, and what to do about it."""
    full = ("disk is full", "requested and")  # as SQLite and NumPy say it
    if getattr(error, "errno", None) == errno.ENOSPC or any(words in str(error) for words in full):
        return "disk full: make room and run the same command again; what was finished is saved"
    if isinstance(error, OSError):
        return f"{error.strerror or type(error).__name__}: {error.filename or error}; choose another place, or mend it"
    return f"{type(error).__name__}: {error}; the file may be damaged, or of another program"


def _fail(message: str) -> None:
    typer.echo(shown(message), err=True)
    sys.exit(2)


def _run_name(experiment: str, overrides: list[str]) -> str:
    """The name of an experiment's run; no method is loaded if the same words were read before."""
    from acclimate.experiment.catalog import shipped
    from acclimate.experiment.remembered import remembered

    def name() -> str:
        from acclimate.experiment.reader import read

        return read(experiment, overrides).run_name

    def lasting() -> str | None:
        from acclimate.experiment.reader import read

        found = read(experiment, overrides)
        return None if found.imports else found.run_name  # a plug-in may change, and our code and the words stay

    path = shipped().get(experiment, Path(experiment))
    if not path.is_file():
        return name()  # says what is wrong
    return remembered(["run name", path.read_bytes().hex(), overrides], lasting) or name()


def _work(experiment: Experiment, runs: Path, workers: int | None, reuse: bool) -> None:
    from acclimate import api
    from acclimate.engine.executor import cores

    number = workers or cores()
    typer.echo(f"run {experiment.run_name} in {runs}, {number} worker(s)", err=True)
    api.run(experiment, runs=runs, workers=number, reuse=reuse)


def _simulate(experiment: Experiment, runs: Path, workers: int | None, reuse: bool) -> None:
    from rich.console import Console

    from acclimate.engine.executor import cores
    from acclimate.experiment.progress import Lines
    from acclimate.flower.simulation import simulate

    if reuse:
        raise AcclimateError("--reuse: what nodes have trained is kept for its own experiment only; leave it out")
    with Lines(Console(stderr=True)) as listener:
        simulate(experiment, runs, nodes=workers or cores(), listener=listener)


def _described(name: str, rooms: list[str]) -> list[dict[str, Any]]:
    """What something of the catalog is, in every room that has it."""
    from acclimate.experiment.catalog import ROOMS
    from acclimate.experiment.remembered import remembered

    def described() -> list[dict[str, Any]]:
        from acclimate.cli.describe import describe

        return [describe(name, room, ROOMS[room][name]) for room in rooms]

    return remembered(["description", name], described)


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
    from acclimate.report.text import WIDE, render

    with of_runs.opened(runs, [name]) as (found,):
        result = table(found)
    if as_json:
        typer.echo(json.dumps(result.plain(), indent=2))
    else:
        columns = width() or WIDE
        Console(width=columns).print(render(result, columns))


def _write_report(runs: Path, name: str, *, again: bool) -> None:
    """The page of a run, in its folder; drawing takes a while, so a page that is there stays unless asked for again."""
    from acclimate.cli.report import tell_page, write_page

    path = runs / name / "report.html"
    if path.exists() and not again:
        tell_page(path)
        return
    from acclimate.report.pictures.picture import Asked

    with of_runs.opened(runs, [name]) as found:
        write_page(found, Asked(), path)
