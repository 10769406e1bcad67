"""The app folder that `flwr run` takes: a thin wrapper with the experiment beside it, and no dependencies."""

from __future__ import annotations

from pathlib import Path

import yaml

from acclimate.errors import ConfigError
from acclimate.experiment.experiment import Experiment

# Dependencies stay empty: Flower would install them by itself, on the server and, where allowed, on nodes.
PROJECT = """\
[project]
name = "{name}"
version = "1.0.0"
description = "The experiment {experiment} of acclimate, on Flower."
license = {{text = "Apache-2.0"}}
dependencies = []

[tool.flwr.app]
publisher = "local"

[tool.flwr.app.components]
serverapp = "{package}.server_app:app"
clientapp = "{package}.client_app:app"

# `flwr run . CONNECTION --run-config "nodes=3"` overrides any of these.
[tool.flwr.app.config]
experiment = "experiment.yaml"  # in the folder {package}; or a path on the server's machine, or a shipped name
overrides = ""                  # as for `acclimate run`: "seeds=[0] phases.0.rounds=50"
runs = ""                       # absolute path on the server's machine; by default $ACCLIMATE_RUNS or ~/acclimate/runs
nodes = 2                       # how many must be there before it begins
wait = 120.0                    # seconds to wait for them, and for one to come back when all are gone
deadline = 900.0                # seconds until a message is given up
"""
SERVER = '''\
"""The server's side: the experiment beside this file."""

from pathlib import Path

from acclimate.flower.server import server_app

app = server_app(Path(__file__).parent)
'''
CLIENT = '''\
"""The nodes' side."""

from acclimate.flower.client import app

__all__ = ["app"]
'''
PACKAGE = "on_flower"


def make_app(folder: Path, experiment: Experiment) -> list[Path]:
    """Write an app folder; what is there already is not overwritten."""
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError([f"{folder} exists already and is not empty; choose another name"], "flower init")
    name = f"acclimate-{experiment.name}".lower().replace("_", "-").replace("+", "-").replace(".", "-")
    files = {
        folder / "pyproject.toml": PROJECT.format(name=name, experiment=experiment.name, package=PACKAGE),
        folder / PACKAGE / "__init__.py": "",
        folder / PACKAGE / "server_app.py": SERVER,
        folder / PACKAGE / "client_app.py": CLIENT,
        folder / PACKAGE / "experiment.yaml": yaml.safe_dump(experiment.plain(), sort_keys=False),
    }
    for path, content in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return list(files)
