"""The command line: parses and prints, nothing else. Heavy imports wait until a command needs them."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from acclimate.cli.data import data, listed
from acclimate.cli.printing import Json, print_rows
from acclimate.cli.report import PictureFormat
from acclimate.errors import AcclimateError, ConfigError, nearest
from acclimate.version import __version__

if TYPE_CHECKING:
    from acclimate.experiment.experiment import Experiment
    from acclimate.experiment.published import Published
    from acclimate.store.run import Run

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
        except KeyboardInterrupt:
            typer.echo(f"\nStopped. Everything finished so far is saved; go on with:\n  {again}", err=True)
            raise typer.Exit(130) from None
    _print_table(runs, read_experiment.run_name, as_json)
    _write_report(runs, read_experiment.run_name)


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
    seed: Annotated[int, typer.Option(help="The seed of the population that 'show scenario' draws.")] = 0,
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
    with _opened(runs, names) as found:
        asked = Asked(seed, slot, client)
        if pictures is not None:
            write_pictures(found, asked, pictures, format.value)
        if wanted:
            printed(found, wanted[0], out)
        elif pictures is None:
            write_page(found, asked, out or runs / names[0] / "report.html")


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
            except KeyboardInterrupt:
                typer.echo("\nStopped. Everything finished so far is saved; run the same command to go on.", err=True)
                raise typer.Exit(130) from None
        _write_page(paper, experiments, runs, docs)
    if no_run:
        _write_page(paper, experiments, runs, docs)


def _write_page(paper: Published, experiments: Mapping[str, Experiment], runs: Path, docs: Path) -> None:
    from acclimate.experiment.run import is_finished
    from acclimate.report.reproduction import write

    done = {piece: e.run_name for piece, e in experiments.items() if is_finished(e, runs)}
    with _opened(runs, list(done.values())) as found:
        for path in write(paper, dict(zip(done, found, strict=True)), docs):
            typer.echo(f"written: {path}")


def main() -> None:
    """The entry point: errors a user can mend are messages, not tracebacks."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except AcclimateError as error:
        _fail(f"{type(error).__name__}: {error}")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        from click.exceptions import Abort, ClickException

        if isinstance(error, ClickException):
            error.show()
            sys.exit(2)
        if isinstance(error, Abort):
            sys.exit(130)
        raise


def _fail(message: str) -> None:
    typer.echo(message, err=True)
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
    import yaml

    from acclimate.experiment.catalog import SCENARIOS
    from acclimate.experiment.schema import check
    from acclimate.scenarios.picture import picture

    name, *options = words or [""]
    if name not in SCENARIOS:
        raise ConfigError([f"unknown scenario '{name}'; {nearest(name, SCENARIOS)}"], "show scenario")
    target = SCENARIOS[name].load()
    given = {key: yaml.safe_load(value) for key, _, value in (option.partition("=") for option in options)}
    values, _, problems = check(target, given, name)
    if problems:
        raise ConfigError(problems, "show scenario")
    return picture(target(**values).build(seed))


def _print_table(runs: Path, name: str, as_json: bool) -> None:
    from rich.console import Console

    from acclimate.report.table import table
    from acclimate.report.text import render

    with _opened(runs, [name]) as (found,):
        result = table(found)
    if as_json:
        typer.echo(json.dumps(result.plain(), indent=2))
    else:
        console = Console()
        # Without a terminal nobody can widen it, so nothing may be cut off.
        Console(width=None if console.is_terminal else 160).print(render(result))


@contextmanager
def _opened(runs: Path, names: Sequence[str]) -> Iterator[list[Run]]:
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


def _write_report(runs: Path, name: str) -> None:
    """The page of a run, in its folder."""
    from acclimate.cli.report import write_page
    from acclimate.report.pictures.picture import Asked

    with _opened(runs, [name]) as found:
        write_page(found, Asked(), runs / name / "report.html")


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
        return [{key: getattr(run, key) for key in ("name", "started", "finished")} for run in store.runs()]
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
