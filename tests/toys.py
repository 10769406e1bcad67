"""Tiny models, clients and populations for tests, and the golden vectors where they are at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from acclimate import params
from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task, Upload
from acclimate.engine.live import Extending, Live
from acclimate.examples import Examples, Images
from acclimate.models.build import Build
from acclimate.models.shallow_cnn import ShallowCNN
from acclimate.scenarios.population import Held, Population, Stream

GOLDEN = Path(__file__).resolve().parents[2] / "shared" / "golden"
TIGHT = {"rtol": 0.0, "atol": 1e-9}  # golden vectors are float64


def golden(name: str) -> Any:
    """The arrays of a golden file such as 'atp/fedavg.npz'; the test is skipped where it is not."""
    path = GOLDEN / name
    if not path.exists():
        pytest.skip(f"golden vectors not here: {name}")
    return np.load(path, allow_pickle=False)


def golden_build(id: int | None = None) -> nn.Module:
    """The model of ATP's golden vectors, in float64."""
    return ShallowCNN(10, (3, 18, 18), nn.Identity()).double()


def golden_params(arrays: Any, prefix: str) -> params.Params:
    """The arrays below a prefix, as parameters; floating ones in float64."""
    found = {name.removeprefix(prefix): arrays[name] for name in arrays.files if name.startswith(prefix)}
    return {
        name: torch.from_numpy(array).double() if array.dtype.kind == "f" else torch.from_numpy(array)
        for name, array in found.items()
    }


def golden_net() -> nn.Module:
    """That model with the golden weights."""
    return params.load(golden_build(), golden_params(golden("atp/inputs.npz"), "w/"))


def golden_batches() -> Sequence[Tensor]:
    """The four batches that every baseline was run on, one after another."""
    return torch.from_numpy(golden("atp/inputs.npz")["X0"]).double().split(20)


def golden_logits(method: str) -> Tensor:
    """What the reference answered to `golden_batches`."""
    return torch.from_numpy(golden("atp/baselines.npz")[f"logits/{method}"])


class Fixed:
    """Stands in for `Examples`: any floats as images, always in the order given."""

    def __init__(self, x: Any, y: Any) -> None:
        self.x = torch.as_tensor(x)
        self.x = self.x.view(-1, 1, 1, 1) if self.x.dim() == 1 else self.x
        self.y = torch.as_tensor(y)

    def __len__(self) -> int:
        return len(self.y)

    def batches(self, size: int, rng: torch.Generator | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        if len(self):
            yield from zip(self.x.split(size), self.y.split(size), strict=True)


def logistic(id: int | None = None) -> nn.Module:
    """One input x, logits (w₀ x, w₁ x), w = 0: the gradient of the cross-entropy is (p_c − y_c) x."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    return params.load(net, {"1.weight": torch.zeros(2, 1)})


def two_layers(id: int | None = None) -> nn.Module:
    """One input x, body b = 1, head (1, −1): logits (b x, −b x)."""
    net = nn.Sequential(nn.Flatten(), nn.Linear(1, 1, bias=False), nn.Linear(1, 2, bias=False))
    return params.load(net, {"1.weight": torch.ones(1, 1), "2.weight": torch.tensor([[1.0], [-1.0]])})


def normed(id: int | None = None) -> nn.Module:
    """One input through a batch norm as new, then a head (1, −1)."""
    net = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(1), nn.Linear(1, 2, bias=False))
    return params.load(net, {**params.of(net), "2.weight": torch.tensor([[1.0], [-1.0]])})


class SmallNet(nn.Module):
    """A convolution, a batch norm and a head, for images of 4 pixels a side or more."""

    def __init__(self, classes: int, shape: tuple[int, int, int], normalise: nn.Module) -> None:
        super().__init__()
        channels, height, width = shape
        self.normalise = normalise
        self.conv = nn.Conv2d(channels, 4, 3, bias=False)
        self.bn = nn.BatchNorm2d(4)
        self.head = nn.Linear(4 * (height - 2) * (width - 2), classes)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.bn(self.conv(self.normalise(x))).relu().flatten(1))
        return logits


def build_for(population: Population) -> Build:
    """A recipe of `SmallNet` for a population."""
    return Build(SmallNet, population.classes, population.shape, population.mean, population.std)


def client(
    train: Examples | Fixed,
    build: Callable[[int | None], nn.Module] = logistic,
    *,
    id: int = 0,
    validation: Examples | Fixed | None = None,
    classes: int = 2,
    source: Sequence[int] = (0,),
    known: Knowledge | None = None,
) -> Client:
    """A client as the engine would make it."""
    task = Task(classes, (1, 1, 1), source, build, known or {})
    rng = torch.Generator().manual_seed(0)
    return Client(id, train, validation or train, task, Live(Extending(build)), rng, known or {})  # type: ignore[arg-type]


class Round(NamedTuple):
    """What one round of `play` left."""

    server: Any
    states: dict[int, Any]
    replies: dict[int, Reply]


def play(algorithm: Algorithm[Any, Any], clients: Sequence[Client], server: Any = None, states: Any = None) -> Round:
    """One round with all clients, as the engine would run it, in this process."""
    server = algorithm.init(clients[0].task) if server is None else server
    states, sent, replies = dict(states or {}), {}, Replies(algorithm.keeps)
    for one in clients:
        before = states[one.id] if one.id in states else algorithm.client_init(one)
        message = algorithm.broadcast(server, one.id)
        sent[one.id], states[one.id] = algorithm.client_update(message, before, one)
        replies.add(one.id, sent[one.id])
    return Round(algorithm.server_update(server, replies), states, sent)


def upload(values: Mapping[str, Tensor] | Tensor | float, weight: float = 1.0, client: int = 0) -> Upload:
    """An upload of these parameters, or of one tensor named 'w'."""
    shared = dict(values) if isinstance(values, Mapping) else {"w": torch.as_tensor(values)}
    return Upload(client, 0, shared, None, weight)


def pixels(count: int, channels: int = 1, side: int = 8, seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Random images [count, side, side, channels]."""
    shape = (count, side, side, channels)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def examples(count: int, classes: int = 3, channels: int = 1, side: int = 8, seed: int = 0) -> Examples:
    """Random images, their classes in turn."""
    images = Images(pixels(count, channels, side, seed))
    return Examples(images, torch.arange(count) % classes, torch.arange(count))


def population(
    clients: int = 4, classes: int = 3, train: int = 12, test: int = 10, new: int = 2, streams: Sequence[str] = ("s",)
) -> Population:
    """`clients` source clients and `new` more, which are tested; a class is the place of a bright bar.

    Images are 1x8x8, so that batch norms, heads and learning all have something to do.
    """
    held = train + 6
    total = clients * held + new * len(streams) * test
    labels = np.arange(total) % classes
    images = pixels(total) // 2
    for row, label in enumerate(labels):
        images[row, 2 * label : 2 * label + 2] += 120
    source = {
        c: (Held(0, np.arange(c * held, c * held + train)), Held(0, np.arange(c * held + train, (c + 1) * held)))
        for c in range(clients)
    }
    tests, start = [], clients * held
    for name in streams:
        for k in range(new):
            rows = np.arange(start, start + test)
            tests.append(Stream(clients + k, name, (("clean", Held(0, rows)),)))
            start += test
    return Population(
        classes, (0.35,), (0.25,), ((Images(images), labels.astype(np.int64)),), source, tests, digest="toy"
    )


def assert_same(found: Tensor, golden: Any) -> None:
    """Equal to a golden array, to the tolerance of float64."""
    torch.testing.assert_close(found, torch.from_numpy(np.asarray(golden)).to(found.dtype), rtol=1e-9, atol=1e-9)
