"""The problem solved by Flower's simulation: `python -m benchmarks.peers.by_flower PROBLEM OUT CORES`.

Flower draws the cohorts itself, so its weights are others; what a client does in a round is the same.
"""

from __future__ import annotations

import sys
import time

import torch
import torch.nn.functional as F
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation

from benchmarks.peers.problem import Problem, read, tell

_HELD: dict[str, Problem] = {}


def client_app(path: str) -> ClientApp:
    app = ClientApp()

    @app.train()
    def fit(message: Message, context: Context) -> Message:
        problem = _HELD.get(path) or _HELD.setdefault(path, read(path))
        id = int(context.node_config["partition-id"])
        net = problem.net()
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        net.train()
        x, y = problem.x[id], problem.y[id]
        optimizer = torch.optim.SGD(net.parameters(), lr=problem.lr)
        for part in torch.randperm(len(y)).split(problem.batch):
            optimizer.zero_grad()
            F.cross_entropy(net(x[part]), y[part]).backward()
            optimizer.step()
        metrics = MetricRecord({"num-examples": len(y)})
        content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
        return Message(content=content, reply_to=message)

    return app


def main(path: str, out: str, cores: int) -> None:
    problem, times = read(path), [time.perf_counter()]
    rounds, cohort = problem.cohorts.shape
    clients, server = len(problem.x), ServerApp()
    found: list[ArrayRecord] = []

    class Timed(FedAvg):
        def aggregate_train(self, *args, **kwargs):  # type: ignore[no-untyped-def]
            done = super().aggregate_train(*args, **kwargs)
            times.append(time.perf_counter())
            return done

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = Timed(fraction_train=cohort / clients, fraction_evaluate=0.0, min_available_nodes=clients)
        start = ArrayRecord(problem.net().state_dict())
        found.append(strategy.start(grid=grid, initial_arrays=start, num_rounds=rounds).arrays)

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": cores}}
    run_simulation(server, client_app(path), num_supernodes=clients, backend_config=resources)
    tell(times, found[0].to_torch_state_dict(), out)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
