"""The three contracts, and the records that pass between them. Start reading here.

An `Algorithm` is a federated phase (training or calibration), an `Adapter` adapts one client's model at test
time without labels, an `Aggregator` lets test clients help each other. The engine drives all three.

Before every call of a contract method the engine seeds torch's default generator from the address of the call
(seed, phase, round or slot, client, call), so methods draw from it freely and seed nothing themselves.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from acclimate import params, trees
from acclimate.examples import Examples
from acclimate.params import Params
from acclimate.trees import Nest

S = TypeVar("S")  # what the server keeps between rounds or slots
C = TypeVar("C")  # what a client keeps between its rounds

Knowledge = dict[str, Nest]  # what phases export by name; "model" is the Params of a model


@dataclass(frozen=True)
class Task:
    """What the server of a phase knows of the problem."""

    classes: int
    shape: tuple[int, int, int]  # channels, height, width
    source: Sequence[int]  # ids of the source clients
    build: Callable[[int | None], nn.Module]  # a client's model, freshly initialised; None: the server's
    known: Knowledge = field(default_factory=dict)  # what earlier phases exported to everybody
    public: Examples | None = None

    def start(self, client: int | None = None) -> Params:
        """Where training starts: at the model that earlier phases made for everybody, else at a fresh one."""
        return self.known["model"] if "model" in self.known else params.of(self.build(client))


@dataclass(frozen=True)
class Client:
    """What a client of a phase holds: its data never leave it."""

    id: int
    train: Examples
    validation: Examples
    task: Task
    net: Callable[[Mapping[str, Tensor]], nn.Module]  # the live model with these parameters loaded in place
    rng: torch.Generator  # orders training batches, and nothing else
    known: Knowledge = field(default_factory=dict)  # what earlier phases exported to this client


class Reply(NamedTuple):
    """What a client sends back."""

    update: Nest
    weight: float = 1.0
    metrics: dict[str, float] = {}  # noqa: RUF012  (never changed)


class Replies:
    """A round's replies, folded into a weighted sum as they arrive: memory does not grow with the cohort.

    >>> replies = Replies()
    >>> replies.add(0, Reply(torch.tensor(1.0), weight=1))
    >>> replies.add(1, Reply(torch.tensor(4.0), weight=2))
    >>> replies.mean(), len(replies)
    (tensor(3.), 2)
    """

    def __init__(self, keeps: bool = False) -> None:
        self.metrics: dict[int, dict[str, float]] = {}  # of each client, also of those left out
        self.left_out: list[int] = []  # clients whose reply was not finite
        self._keeps = keeps
        self._kept: list[tuple[int, Reply]] = []
        self._count, self._weight = 0, 0.0
        self._sums: list[Tensor] = []
        self._types: list[str] = []
        self._skeleton: str | None = None

    def __len__(self) -> int:
        return self._count

    def add(self, client: int, reply: Reply) -> None:
        """Fold one client's reply in. One that is not finite is left out and remembered by name."""
        self.metrics[client] = dict(reply.metrics)
        tensors, skeleton = trees.flatten(reply.update)
        # float64: the mean of equal models is that model, to the bit.
        weighted = [tensor.detach().double() * reply.weight for tensor in tensors]
        # A sum is finite only if everything in it is: one pass instead of a mask.
        if not (reply.weight > 0 and all(math.isfinite(tensor.sum()) for tensor in weighted)):
            self.left_out.append(client)
            return
        self._fold(skeleton, [str(tensor.dtype) for tensor in tensors], weighted, reply.weight, 1)
        if self._keeps:
            self._kept.append((client, reply))

    def merge(self, later: Replies) -> None:
        """Fold in the replies of the next chunk of clients."""
        self.metrics.update(later.metrics)
        self.left_out.extend(later.left_out)
        self._kept.extend(later._kept)
        if later._skeleton is not None:
            self._fold(later._skeleton, later._types, later._sums, later._weight, later._count)

    def mean(self) -> Nest:
        """Σ_k (weight_k / Σ weight) · update_k."""
        return self._divided(self._weight)

    def sum(self) -> Nest:
        """Σ_k weight_k · update_k."""
        return self._divided(1.0)

    def items(self) -> list[tuple[int, Reply]]:
        """Every reply with its client; only for algorithms that declare `keeps = True`."""
        if not self._keeps:
            raise ValueError("replies were folded as they arrived; set `keeps = True` on the algorithm")
        return list(self._kept)

    def pack(self) -> Nest:
        """As a nest, to be sent to another process."""
        return dict(vars(self))

    @classmethod
    def unpack(cls, packed: Nest) -> Replies:
        """The inverse of `pack`."""
        replies = cls()
        vars(replies).update(packed)
        return replies

    def _divided(self, by: float) -> Nest:
        if self._skeleton is None:
            raise ValueError("no client's reply could be used, so there is neither a mean nor a sum")
        values = [
            params.cast(total / by, getattr(torch, kind.removeprefix("torch.")))
            for total, kind in zip(self._sums, self._types, strict=True)
        ]
        return trees.unflatten(values, self._skeleton)

    def _fold(self, skeleton: str, types: list[str], sums: list[Tensor], weight: float, count: int) -> None:
        if self._skeleton is None:
            self._skeleton, self._types, self._sums = skeleton, types, sums
        elif (self._skeleton, self._types) != (skeleton, types):
            raise ValueError("replies of one round differ in structure and cannot be averaged")
        else:
            self._sums = [a + b for a, b in zip(self._sums, sums, strict=True)]
        self._weight += weight
        self._count += count


class Algorithm(ABC, Generic[S, C]):
    """A federated phase. Subclasses are frozen dataclasses of hyper-parameters and change nothing on `self`."""

    revision: ClassVar[int] = 0  # raised when a default changes: what was made with the old one has another name
    keeps: ClassVar[bool] = False  # True: server_update needs every reply, not only their mean
    exports: ClassVar[tuple[str, ...]] = ("model",)  # the names `export` gives; without "model": a calibration

    @abstractmethod
    def init(self, task: Task) -> S:
        """The server's state before the first round."""

    def client_init(self, client: Client) -> C:
        """The state that stays on a client, at its first participation."""
        return None  # type: ignore[return-value]

    def broadcast(self, server: S, id: int) -> Any:
        """What the server sends to a client; by default its state, the same for all."""
        return server

    @abstractmethod
    def client_update(self, message: Any, state: C, client: Client) -> tuple[Reply, C]:
        """A client's work in one round."""

    @abstractmethod
    def server_update(self, server: S, replies: Replies) -> S:
        """The server's state after a round. Not called when nobody's reply could be used."""

    @abstractmethod
    def export(self, server: S, state: C | None) -> Knowledge:
        """What a client takes from this phase; state None: a client that never took part."""


class Adapter(nn.Module):
    """Adapts a classifier to unlabelled batches. `adapter(x)` adapts and predicts, in the paper's order.

    Subclasses take the model, each name in `needs`, and options: `__init__(net, *, <needs>, <options>)`. They
    may change modes, `requires_grad` and tensors of `net`, nothing of its structure.
    """

    revision: ClassVar[int] = 0  # raised when a default changes
    needs: ClassVar[tuple[str, ...]] = ()
    optimizer: torch.optim.Optimizer | None = None  # set by adapters with an inner step; part of their state

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net.eval()
        self.figures: dict[str, Tensor] = {}  # what a report may draw; emptied by the engine before each slot

    @classmethod
    def requires(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        """What an adapter with these options needs besides the model; one around another needs what that one does."""
        return cls.needs

    def moving(self) -> Params:
        """The tensors that adaptation changes in place (the tensors themselves, not copies)."""
        return {}

    def adapt(self, x: Tensor) -> None:
        """Learn from an unlabelled batch."""

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        """Logits of a batch. Leaves `state()` as it was."""
        logits: Tensor = self.net(x)
        return logits

    def forward(self, x: Tensor) -> Tensor:
        """Both, in the paper's order."""
        self.adapt(x)
        return self.predict(x)

    def state(self) -> Nest:
        """All that adaptation can change, and only that."""
        return {
            "moving": {name: params.copy(tensor) for name, tensor in self.moving().items()},
            "optimizer": None if self.optimizer is None else _copied(self.optimizer.state_dict()),
        }

    def load_state(self, state: Nest) -> None:
        """Go back to a state."""
        params.assign(self.moving(), state["moving"])
        if self.optimizer is not None:
            self.optimizer.load_state_dict(state["optimizer"])

    def shared(self) -> Params:
        """What may leave the client; by default all that moves."""
        return {name: params.copy(tensor) for name, tensor in self.moving().items()}

    def load_shared(self, shared: Mapping[str, Tensor]) -> None:
        """Take what the server sent back."""
        params.assign(self.moving(), shared)


@dataclass(frozen=True)
class AdapterRecipe:
    """An adapter and its options, before there is a model: what an adapter around another takes as its option.

    >>> AdapterRecipe(Adapter)(nn.Linear(1, 2)).net
    Linear(in_features=1, out_features=2, bias=True)
    """

    target: type[Adapter]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def needs(self) -> tuple[str, ...]:
        """Names of the knowledge it has to be given."""
        return self.target.requires(self.options)

    def __call__(self, net: nn.Module, **knowledge: Nest) -> Adapter:
        """The adapter around a model."""
        return self.target(net, **knowledge, **self.options)


class Upload(NamedTuple):
    """What a test client sends in one slot."""

    client: int
    slot: int
    params: Params
    signature: Tensor | None  # mean feature of the frozen source model on the batch
    weight: float  # number of images


class Mix(NamedTuple):
    """What an aggregator makes of uploads: one download for each of the slot's own, in their order.

    Whoever gets the same may be given the same object.
    """

    downloads: list[Params]
    state: Nest
    figures: dict[str, Tensor] = {}  # noqa: RUF012  (never changed)


class Aggregator(ABC, Generic[S]):
    """Turns the uploads of a slot into downloads. Subclasses are frozen dataclasses of hyper-parameters."""

    revision: ClassVar[int] = 0  # raised when a default changes
    signs: ClassVar[bool] = False  # True: the engine computes signatures
    keeps: ClassVar[bool] = False  # True: `mix` also gets the last uploads of clients that are absent, after the others

    @abstractmethod
    def init(self, start: Sequence[Upload]) -> S:
        """The server's state, given all clients' uploads before any adaptation."""

    @abstractmethod
    def mix(self, state: S, uploads: Sequence[Upload], slot: int) -> Mix:
        """The downloads of one slot; uploads may be few or none. One with an earlier `slot` gets no download."""


def _copied(nest: Nest) -> Nest:
    return trees.transform(params.copy, nest)
