"""The problem solved by pfl: `python -m benchmarks.peers.by_pfl PROBLEM OUT`, or by torchrun in several processes."""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
import torch.nn.functional as F
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Weighted
from pfl.model.pytorch import PyTorchModel

from benchmarks.peers.problem import Problem, read, tell


def main(path: str, out: str) -> None:
    problem, times = read(path), [time.perf_counter()]
    rounds, cohort = problem.cohorts.shape
    places = iter([(r, k) for r in range(rounds) for k in range(cohort)] * 2)
    net = _with_loss(problem)

    def dataset(place: tuple[int, int]) -> Dataset:
        id, order = int(problem.cohorts[place]), problem.orders[place]
        return Dataset((problem.x[id][order], problem.y[id][order]), user_id=str(id))

    class Clock(TrainingProcessCallback):
        def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
            from pfl.metrics import Metrics

            times.append(time.perf_counter())
            return False, Metrics()

    statistics = {name: tensor for name, tensor in net.named_buffers() if tensor.is_floating_point()}
    model = PyTorchModel(
        model=net,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD([*net.parameters(), *statistics.values()], lr=1.0),
    )
    model.variable_map.update(statistics)  # it averages parameters alone; the others average statistics too
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(rounds, 10 * rounds, cohort, None),
        backend=SimulatedBackend(FederatedDataset(dataset, lambda: next(places)), None),
        model=model,
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=problem.lr, local_batch_size=problem.batch
        ),
        callbacks=[Clock()],
        send_metrics_to_platform=False,
    )
    tell(times, net, out)


def _with_loss(problem: Problem) -> torch.nn.Module:
    """The model with what pfl asks of one."""
    net: Any = problem.net()

    def loss(x: torch.Tensor, y: torch.Tensor, is_eval: bool = False) -> torch.Tensor:
        net.train(not is_eval)
        return F.cross_entropy(net(x), y)

    def metrics(x: torch.Tensor, y: torch.Tensor, is_eval: bool = True) -> dict[str, Any]:
        return {"loss": Weighted(0.0, len(y))}

    net.loss, net.metrics = loss, metrics
    return net


if __name__ == "__main__":
    main(*sys.argv[1:])
