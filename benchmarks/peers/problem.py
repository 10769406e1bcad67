"""The problem that all sides solve, from one file: the same images, initial weights, cohorts and orders of batches.

Imported in the peers' environment too, so it needs torch, numpy and the models alone.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from acclimate.models.build import Build
from acclimate.models.mlp import MLP
from acclimate.models.shallow_cnn import ShallowCNN

MODELS: dict[str, Any] = {"linear": (MLP, {"hidden": ()}), "cnn": (ShallowCNN, {})}


class Problem(NamedTuple):
    """A federated problem, and in which order everything happens."""

    model: str
    x: Tensor  # [clients, each, C, H, W] in [0, 1]
    y: Tensor
    cohorts: Tensor  # [rounds, cohort]
    orders: Tensor  # [rounds, cohort, each]
    weights: dict[str, Tensor]
    lr: float
    batch: int

    def net(self) -> nn.Module:
        """The model with the initial weights."""
        make, options = MODELS[self.model]
        shape = tuple(self.x.shape[2:])
        net = Build(make, 10, shape, (0.5,) * shape[0], (0.25,) * shape[0], options)()  # type: ignore[arg-type]
        net.load_state_dict(self.weights)
        return net


def write(path: Path, problem: Problem) -> None:
    weights = {f"w/{name}": tensor.numpy() for name, tensor in problem.weights.items()}
    arrays = {name: getattr(problem, name).numpy() for name in ("x", "y", "cohorts", "orders")}
    np.savez(path, model=problem.model, lr=problem.lr, batch=problem.batch, **arrays, **weights)


def read(path: str) -> Problem:
    torch.set_num_threads(1)
    held = np.load(path)
    x, y, cohorts, orders = (torch.from_numpy(held[name]) for name in ("x", "y", "cohorts", "orders"))
    weights = {name[2:]: torch.from_numpy(held[name]) for name in held.files if name.startswith("w/")}
    return Problem(str(held["model"]), x, y, cohorts, orders, weights, float(held["lr"]), int(held["batch"]))


def tell(times: list[float], net: nn.Module | dict[str, Tensor] | None, out: str) -> None:
    """Seconds at the end of each round, and the weights, for whoever compares."""
    state = net.state_dict() if isinstance(net, nn.Module) else net or {}
    np.savez(out, **{name: tensor.detach().numpy() for name, tensor in state.items()})
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"times": times, "peak": peak, "pid": os.getpid()}))
    sys.stdout.flush()
