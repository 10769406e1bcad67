"""Methods around methods, as guards and robust aggregators will be; these change nothing, or say how they would."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from acclimate.adapters.tent import Tent
from acclimate.aggregators.fedamp import FedAMP
from acclimate.contracts import (
    Adapter,
    AdapterRecipe,
    Aggregator,
    Algorithm,
    Client,
    Knowledge,
    Mix,
    Replies,
    Reply,
    Task,
    Upload,
)
from acclimate.experiment.catalog import ADAPTERS, AGGREGATORS, PHASES, Entry
from acclimate.options import Count, Positive, Share
from acclimate.params import Params
from acclimate.training.fedavg import FedAvg
from acclimate.trees import Nest


@dataclass(frozen=True)
class Through(Aggregator[Any]):
    """What another aggregator makes of the uploads."""

    of: Aggregator[Any]
    share: Share = 1.0

    @property
    def signs(self) -> bool:
        return self.of.signs

    @property
    def keeps(self) -> bool:
        return self.of.keeps

    def init(self, start: Sequence[Upload]) -> Any:
        return self.of.init(start)

    def mix(self, state: Any, uploads: Sequence[Upload], slot: int) -> Mix:
        return self.of.mix(state, uploads, slot)


@dataclass(frozen=True)
class Usual(Through):
    """The same around one that is there by default."""

    of: Aggregator[Any] = field(default_factory=lambda: FedAMP(sigma=0.5))


@dataclass(frozen=True)
class Around(Algorithm[Any, Any]):
    """Another phase."""

    of: Algorithm[Any, Any]
    most: Count = 1

    @property
    def exports(self) -> tuple[str, ...]:
        return self.of.exports

    @property
    def keeps(self) -> bool:
        return self.of.keeps

    def init(self, task: Task) -> Any:
        return self.of.init(task)

    def client_init(self, client: Client) -> Any:
        return self.of.client_init(client)

    def client_update(self, message: Any, state: Any, client: Client) -> tuple[Reply, Any]:
        return self.of.client_update(message, state, client)

    def expects(self, message: Any, task: Task) -> Nest:
        return self.of.expects(message, task)

    def server_update(self, server: Any, replies: Replies) -> Any:
        return self.of.server_update(server, replies)

    def export(self, *args: Any) -> Knowledge:
        return self.of.export(*args)


class Guard(Adapter):
    """Another adapter."""

    def __init__(self, net: nn.Module, *, of: AdapterRecipe, margin: Share = 0.5, **knowledge: Nest) -> None:
        super().__init__(net)
        self.of = of(net, **knowledge)

    @classmethod
    def requires(cls, options: Mapping[str, Any]) -> tuple[str, ...]:
        return options["of"].needs

    def moving(self) -> Params:
        return self.of.moving()

    def adapt(self, x: Tensor) -> None:
        self.of.adapt(x)

    def predict(self, x: Tensor) -> Tensor:
        return self.of.predict(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.of(x)

    def state(self) -> Nest:
        return self.of.state()

    def load_state(self, state: Nest) -> None:
        self.of.load_state(state)

    def shared(self) -> Params:
        return self.of.shared()

    def load_shared(self, shared: Mapping[str, Tensor]) -> None:
        self.of.load_shared(shared)


@dataclass(frozen=True)
class Grown(FedAvg):
    """FedAvg as it will be, with one more option."""

    later: Share = 0.5


@dataclass(frozen=True)
class Revised(FedAvg):
    """FedAvg with another default."""

    revision = 1


class GrownTent(Tent):
    """Tent as it will be, with one more option."""

    def __init__(self, net: nn.Module, *, lr: Positive = 1e-3, steps: Count = 1, later: bool = False) -> None:
        super().__init__(net, lr=lr, steps=steps)


def list_them(monkeypatch):
    """Put them into the catalog for one test."""
    monkeypatch.setitem(AGGREGATORS, "through", Entry("wrappers:Through", ""))
    monkeypatch.setitem(AGGREGATORS, "usual", Entry("wrappers:Usual", ""))
    monkeypatch.setitem(PHASES, "around", Entry("wrappers:Around", ""))
    monkeypatch.setitem(ADAPTERS, "watched", Entry("wrappers:Guard", "", grid={"of.lr": [0.001, 0.01]}))
