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
from acclimate.examples import Examples, Unlabelled
from acclimate.params import Params
from acclimate.replies import Replies, Reply
from acclimate.trees import Nest

__all__ = [
    "Adapter", "AdapterRecipe", "Aggregator", "Algorithm", "Client", "Knowledge", "Limits", "Mix", "Newcomer",
    "Replies", "Reply", "Task", "Upload",
]  # fmt: skip

S = TypeVar("S")  # what the server keeps between rounds or slots
C = TypeVar("C")  # what a client keeps between its rounds

Limits = dict[str, tuple[float, float]]  # name of a tensor → the least and the greatest value it may have
Knowledge = dict[str, Nest]  # what phases export by name; "model" is the Params of a model


def _unforeseen() -> torch.Generator:
    generator = torch.Generator()
    generator.seed()
    return generator


@dataclass(frozen=True)
class Task:
    """What the server of a phase knows of the problem."""

    classes: int
    shape: tuple[int, int, int]  # channels, height, width
    source: Sequence[int]  # ids of the source clients
    build: Callable[[int | None], nn.Module]  # a client's model, freshly initialised; None: the server's
    known: Knowledge = field(default_factory=dict)  # what earlier phases exported to everybody
    public: Unlabelled | None = None  # images that everybody has

    def start(self, client: int | None = None) -> Params:
        """Where training starts: at the model that earlier phases made for everybody, else at a fresh one."""
        return _started(self.build(client), self.known)


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
    # What a method may find again in later rounds, such as something slow to compute. It may be empty in any round, so
    # no result may depend on it.
    notes: dict[int, Nest] = field(default_factory=dict)
    # Draws what nobody else may draw again, such as noise that hides a reply; on a machine of its own the client's.
    secret: torch.Generator = field(default_factory=_unforeseen)

    def start(self) -> Params:
        """Where this client's training starts: at the model that earlier phases made for it, else at a fresh one."""
        return _started(self.task.build(self.id), self.known)


@dataclass(frozen=True)
class Newcomer:
    """A client that never took part in a phase, with what it has at its first slot: images, no labels."""

    id: int
    x: Tensor  # the images of its first slot
    task: Task
    net: Callable[[Mapping[str, Tensor]], nn.Module]  # the live model with these parameters loaded in place


class Algorithm(ABC, Generic[S, C]):
    """A federated phase. Subclasses are frozen dataclasses of hyper-parameters and change nothing on `self`.

    A class or an instance may say what holds for it: `exports = ("rates",)`, or a property where a wrapper asks the
    phase inside it.
    """

    revision: ClassVar[int] = 0  # raised when a default changes: what was made before is then not taken for the new

    @property
    def keeps(self) -> bool:
        """Whether `server_update` needs every reply, not only their mean."""
        return False

    @property
    def needs(self) -> tuple[str, ...]:
        """What it takes from earlier phases; a calibration at least the model."""
        return () if "model" in self.exports else ("model",)

    @property
    def exports(self) -> tuple[str, ...]:
        """The names `export` gives; without "model": a calibration."""
        return ("model",)

    @property
    def personal(self) -> tuple[str, ...]:
        """Those of them that differ from client to client."""
        return ()

    @property
    def welcomes(self) -> bool:
        """Whether clients that never took part can get a state of their own."""
        return type(self).welcome is not Algorithm.welcome

    @property
    def sends_back(self) -> bool:
        """Whether a reply is the named tensors that `expects` gives, moved by training: how far can then be limited."""
        return False

    def extend(self, net: nn.Module) -> nn.Module:
        """A model with the further modules that this phase trains (`models.extended`); by default as it is."""
        return net

    # On the server.

    @abstractmethod
    def init(self, task: Task) -> S:
        """The server's state before the first round."""

    def broadcast(self, server: S, id: int) -> Any:
        """What the server sends to a client in a round; by default its state, the same for all."""
        return server

    def expects(self, message: Any, task: Task) -> Nest:
        """What an honest reply to a message looks like (its `update`): names, shapes and types; by default as the
        message. Values do not count. Whoever sends something else is left out of the round.
        """  # noqa: D205
        return message

    @abstractmethod
    def server_update(self, server: S, replies: Replies) -> S:
        """The server's state after a round. Not called when nobody's reply could be used."""

    def release(self, server: S, id: int) -> Any:
        """What a client may have when the phase is over; by default what it would be sent for another round."""
        return self.broadcast(server, id)

    # On the client. What the server sent serves all clients of a process: it must not be changed.

    def client_init(self, client: Client) -> C:
        """The state that stays on a client, at its first participation."""
        return None  # type: ignore[return-value]

    @abstractmethod
    def client_update(self, message: Any, state: C, client: Client) -> tuple[Reply, C]:
        """A client's work in one round."""

    def welcome(self, released: Any, newcomer: Newcomer) -> C | None:
        """The first state of a client that never took part, made without labels."""
        return None

    @abstractmethod
    def export(self, released: Any, state: C | None, client: int) -> Knowledge:
        """What a client takes from this phase; state None: one that has none."""


class Adapter(nn.Module):
    """Adapts a classifier to unlabelled batches. `adapter(x)` adapts and predicts, in the paper's order.

    Subclasses take the model, each name in `needs`, and options: `__init__(net, *, <needs>, <options>)`. They
    may change modes, `requires_grad` and tensors of `net`, nothing of its structure.
    """

    needs: ClassVar[tuple[str, ...]] = ()
    revision: ClassVar[int] = 0  # raised when a default changes
    optimizer: torch.optim.Optimizer | None = None  # set by adapters with an inner step; part of their state

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net.eval()
        # What a report may draw; emptied by the engine before each slot. `predictions` [steps, images], the classes
        # predicted after each step, are counted as right or wrong where the labels are, and only the counts go on.
        self.figures: dict[str, Tensor] = {}

    @classmethod
    def requires(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        """What an adapter with these options needs; a wrapper also asks for what the one inside it needs."""
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

    def expects(self, classes: int) -> Params:
        """What an honest upload looks like after a batch: names, shapes and types; by default as before the first."""
        return self.shared()

    def limits(self) -> Limits:
        """Between which values a tensor that is shared must lie, by name; by default no variance or count of a prior is
        negative.
        """  # noqa: D205
        return {name: (0.0, math.inf) for name in self.moving() if name.endswith(("running_var", "prior"))}


@dataclass(frozen=True)
class AdapterRecipe:
    """An adapter that is still without a model: its class and options. An adapter that wraps another is given one.

    >>> AdapterRecipe(Adapter)(nn.Linear(1, 2)).net
    Linear(in_features=1, out_features=2, bias=True)
    """

    target: type[Adapter]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def needs(self) -> tuple[str, ...]:
        """What it must be given besides the model."""
        return self.target.requires(self.options)

    def __call__(self, net: nn.Module, **knowledge: Nest) -> Adapter:
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

    Whoever gets the same may be given the same object. None: its upload was set aside, and it gets nothing.
    """

    downloads: Sequence[Params | None]
    state: Nest
    figures: dict[str, Tensor] = {}  # noqa: RUF012  (never changed)


class Aggregator(ABC, Generic[S]):
    """Turns the uploads of a slot into downloads. Subclasses are frozen dataclasses of hyper-parameters."""

    revision: ClassVar[int] = 0  # raised when a default changes

    @property
    def signs(self) -> bool:
        """Whether the engine computes signatures."""
        return False

    @property
    def remembers(self) -> bool:
        """Whether `mix` also gets the last uploads of clients that are absent, after the others."""
        return False

    @abstractmethod
    def init(self, start: Sequence[Upload]) -> S:
        """The server's state, given all clients' uploads before any adaptation."""

    @abstractmethod
    def mix(self, state: S, uploads: Sequence[Upload], slot: int) -> Mix:
        """The downloads of one slot; uploads may be few or none. One with an earlier `slot` gets no download.

        Clients that `init` never saw may come at any time.
        """

    def forget(self, state: S, client: int) -> S:
        """The state after a client has left for good; by default it holds nothing of single clients."""
        return state


def _copied(nest: Nest) -> Nest:
    return trees.transform(params.copy, nest)


def _started(net: nn.Module, known: Knowledge) -> Params:
    """A model that is known, with fresh tensors where it lacks what a phase has added; else a fresh one."""
    return {**params.of(net), **known.get("model", {})}
