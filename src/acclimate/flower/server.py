"""The ServerApp: the experiment runs here as it does on one machine, only that its clients are on nodes."""

from __future__ import annotations

import csv
import io
import os
import shlex
import warnings
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.serverapp import ServerApp
from rich.console import Console

from acclimate.data.folders import write_whole
from acclimate.errors import ConfigError
from acclimate.experiment.experiment import Experiment
from acclimate.experiment.progress import Lines
from acclimate.experiment.reader import read
from acclimate.experiment.run import STORE, is_finished, run
from acclimate.flower.executor import Exchange, Line, OnLine
from acclimate.flower.grid import GridLine
from acclimate.flower.places import OnNodes
from acclimate.report.table import table
from acclimate.report.text import WIDE, render
from acclimate.store.database import Store

EXCHANGES = "exchanges.csv"  # in the folder of a run


@dataclass(frozen=True)
class Settings:
    """What the configuration of the app says."""

    experiment: Experiment
    runs: Path
    nodes: int = 1
    wait: float = 120.0
    deadline: float = 900.0

    @staticmethod
    def of(config: Mapping[str, Any], folder: Path) -> Settings:
        """From Flower's run configuration; files are looked for in the app's folder."""
        name = str(config.get("experiment") or "experiment.yaml")
        inside = folder / name
        runs = Path(str(config.get("runs") or os.environ.get("ACCLIMATE_RUNS") or "~/acclimate/runs")).expanduser()
        if not runs.is_absolute():
            raise ConfigError([f"runs: expected an absolute path on the server's machine, found '{runs}'"], "the app")
        chosen = read(str(inside) if inside.is_file() else name, shlex.split(str(config.get("overrides", ""))))
        numbers = {key: float(config[key]) for key in ("wait", "deadline") if key in config}
        return Settings(chosen, runs, int(config.get("nodes", 1)), **numbers)


def serve(line: Line, settings: Settings, listener: Any) -> str:
    """Run an experiment on nodes, or what is left of it; returns the name of the run."""
    experiment = OnNodes.of(settings.experiment, settings.runs)
    if is_finished(experiment, settings.runs):
        listener.say(f"{experiment.run_name} was finished before")
        return experiment.run_name
    executor = OnLine(
        line, experiment, nodes=settings.nodes, wait=settings.wait, deadline=settings.deadline, say=listener.say
    )
    executor.greet()
    if experiment.own_data:
        experiment = experiment.holding(executor.holders(), settings.runs)
        executor.bind(experiment)
    try:
        run(experiment, settings.runs, executor=executor, listener=listener)
    finally:
        _write_exchanges(settings.runs / experiment.run_name / EXCHANGES, executor.exchanges)
    return experiment.run_name


def server_app(folder: Path) -> ServerApp:
    """The app of a folder that `acclimate flower init` has made."""

    def main(grid: Any, context: Any) -> None:
        console = Console(stderr=True, width=WIDE)
        warnings.showwarning = lambda message, *_, **__: console.print(f"note: {message}", markup=False)
        with Lines(console) as listener:
            settings = Settings.of(context.run_config, folder)
            name = serve(GridLine(grid), settings, listener)
        with closing(Store(settings.runs / STORE)) as store:
            found = store.find(name)
            assert found is not None
            console.print(render(table(found), WIDE))
        console.print(f"run {name} in {settings.runs}", markup=False)

    app = ServerApp()
    app.main()(main)
    return app


def _write_exchanges(path: Path, exchanges: list[Exchange]) -> None:
    """What went over the line, added to what earlier sittings have written."""
    if not exchanges or not path.parent.is_dir():
        return
    before = path.read_text(encoding="utf-8") if path.exists() else ",".join(Exchange._fields) + "\r\n"
    text = io.StringIO(newline="")
    csv.writer(text).writerows(exchanges)
    write_whole(path, lambda file: file.write((before + text.getvalue()).encode()))
