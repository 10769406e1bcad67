"""An experiment on Flower's simulation: nodes are actors of ray, on this machine or on a cluster."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path
from typing import Any

from acclimate.engine.executor import cores
from acclimate.errors import AcclimateError
from acclimate.experiment.experiment import Experiment
from acclimate.experiment.listener import Listener
from acclimate.flower.deploy import QUIET


def simulate(experiment: Experiment, runs: Path, *, nodes: int, listener: Listener) -> str:
    """Run an experiment on simulated nodes, or what is left of it; returns the name of the run.

    RAY_ADDRESS in the environment: on that cluster, whose machines need the same files; else this machine is one.
    """
    os.environ.update({name: os.environ.get(name, value) for name, value in QUIET.items()})
    try:
        import ray
        from flwr.clientapp import ClientApp
        from flwr.serverapp import ServerApp
        from flwr.simulation import run_simulation
    except ImportError as error:
        raise AcclimateError(f"{error}; install the extra: pip install 'acclimate[flower]'") from error
    from acclimate.flower.grid import GridLine
    from acclimate.flower.places import OnNodes
    from acclimate.flower.server import Settings, serve

    name, ended = OnNodes.of(experiment).run_name, threading.Event()
    client, server = ClientApp(), ServerApp()
    config = {"folder": str(runs.resolve() / name / "nodes"), "plugins": " ".join(_allowed(experiment))}
    for listen in (client.query, client.train, client.evaluate):
        listen()(partial(_answer, config))

    def main(grid: Any, context: Any) -> None:
        serve(GridLine(grid, ended.is_set), Settings(experiment, runs, nodes), listener)

    server.main()(main)
    cluster = os.environ.get("RAY_ADDRESS")
    where: dict[str, Any] = {"address": cluster} if cluster else {"num_cpus": cores(), "include_dashboard": False}
    try:
        run_simulation(server, client, nodes, backend_config={"client_resources": {"num_cpus": 1}, "init_args": where})
    finally:
        ended.set()  # where the simulation was stopped, its server ends too
        ray.shutdown()
    return name


def _answer(config: dict[str, str], message: Any, context: Any) -> Any:
    """As on a node, with a folder for each inside that of the run."""
    from acclimate.flower.client import answered

    part = context.node_config["partition-id"]
    return answered(message, {**context.node_config, **config, "folder": f"{config['folder']}/{part}"})


def _allowed(experiment: Experiment) -> list[str]:
    """The plug-ins that whoever started this has named, so that they can be found from anywhere."""
    return [
        f"{file}:{written.rpartition(':')[2]}" if ".py:" in written else written
        for written, file in experiment.imports.items()
    ]
