"""Devices that help each other: each adapts to what it meets, a server mixes what they share.

Everything that travels is bytes, a nest of tensors as `acclimate.trees` writes it (a safetensors blob, no pickle), so
any transport will do. There are three messages:

    hello     {"params": {name: tensor}, "signature": None, "weight": 0}      a device, before it has adapted
    upload    {"params": {name: tensor}, "signature": tensor or None, "weight": images}      after a batch
    download  {name: tensor}      from the server, for one device

`params` is what the adapter shares (`Adapter.shared`), `signature` the mean feature of the batch at the model as it was
shipped, where the aggregator asks for one (`Server.signs`). Names of devices travel beside the messages.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from acclimate import params, trees
from acclimate.contracts import Adapter, Aggregator, Upload
from acclimate.device.adapted import Adapted
from acclimate.device.wrapping import around, chosen_adapter
from acclimate.engine.seeds import seed_call
from acclimate.errors import ConfigError, nearest
from acclimate.experiment.catalog import AGGREGATORS
from acclimate.experiment.choice import choose
from acclimate.experiment.outside import Outside
from acclimate.models.head import signature
from acclimate.trees import Nest

Method = str | Mapping[str, Any]  # a name, or a mapping with name and options


class Device:
    """A member of a fleet, around an adapted model: `upload = device.adapt(batch)`, `device.take(download)`, then
    `device.predict(batch)`. Without an exchange, or when it fails, `predict` answers all the same.
    """  # noqa: D205

    def __init__(self, adapted: Adapted, signs: bool = False) -> None:
        self.adapted = adapted
        self._source = None
        if signs:
            self._source = copy.deepcopy(adapted)  # as it was shipped
            self._source.reset()

    def hello(self) -> bytes:
        """The first message to the server."""
        return _message(self.adapted.adapter, None, 0)

    def adapt(self, *batch: Any, **named: Any) -> bytes:
        """Learn from a batch; the message to the server."""
        self.adapted.adapt(*batch, **named)
        sign = None if self._source is None else signature(*self._source.at(*batch, **named))
        size = next(len(value) for value in (*batch, *named.values()) if isinstance(value, Tensor))
        return _message(self.adapted.adapter, sign, size)

    def take(self, download: bytes | None) -> None:
        """Go on with what the server sent back; None: with one's own."""
        if download is not None:
            self.adapted.adapter.load_shared(trees.load(download))

    def predict(self, *batch: Any, **named: Any) -> Tensor:
        """The logits of a batch."""
        return self.adapted.predict(*batch, **named)


class Server:
    """Mixes what devices share. Devices come and go; whoever is absent in an exchange just sends nothing."""

    def __init__(self, aggregator: Method | Aggregator[Any], *, seed: int = 0) -> None:
        self.aggregator = _aggregator(aggregator)
        self.seed, self.slot = seed, 0
        self.left_out: dict[str, str] = {}  # in the last exchange: whose message could not be used, and why
        self._ids: dict[str, int] = {}  # of who is in the fleet; never given twice
        self._next = 0
        self._starts: dict[int, Upload] = {}
        self._kept: dict[int, Upload] = {}  # last uploads, where the aggregator goes on with them
        self._state: Nest = None
        self._begun = False

    @property
    def signs(self) -> bool:
        """Whether uploads must carry a signature."""
        return self.aggregator.signs

    @property
    def members(self) -> tuple[str, ...]:
        """Who is in the fleet."""
        return tuple(self._ids)

    def join(self, name: str, hello: bytes) -> None:
        """Take a device in, at any time."""
        if name in self._ids:
            raise ConfigError([f"'{name}' is in the fleet already; it must leave before it joins again"], "the fleet")
        start = _opened(hello, self._next, self.slot)
        if isinstance(start, str):
            raise ConfigError([f"the hello of '{name}' cannot be used: {start}"], "the fleet")
        if not start.params:
            raise ConfigError(
                ["this adapter shares nothing, so there is nothing to mix; use another one (bn-adapt, tent, em, bbse)"],
                "the fleet",
            )
        self._ids[name], self._starts[self._next] = self._next, start
        self._next += 1

    def leave(self, name: str) -> None:
        """Let a device go, and forget what is known of it."""
        id = self._id(name)
        del self._ids[name]
        self._starts.pop(id, None)
        self._kept.pop(id, None)
        if self._begun:
            self._state = self.aggregator.forget(self._state, id)

    def exchange(self, uploads: Mapping[str, bytes]) -> dict[str, bytes]:
        """Downloads for the devices that sent something; who sent what cannot be used is in `left_out`.

        A device whose upload the aggregator set aside gets none.
        """
        if not self._begun:
            seed_call(self.seed, "fleet", "init")
            self._state, self._begun = self.aggregator.init(list(self._starts.values())), True
        sent = self._accepted(uploads)
        absent = [upload for id, upload in self._kept.items() if id not in sent]
        with torch.random.fork_rng(devices=[]):
            seed_call(self.seed, "fleet", self.slot, "mix")
            mix = self.aggregator.mix(self._state, [*sent.values(), *absent], self.slot)
        self._state = trees.transform(params.copy, mix.state)
        if self.aggregator.remembers:
            self._kept |= sent
        self.slot += 1
        names = {id: name for name, id in self._ids.items()}
        downloads = zip(sent, mix.downloads, strict=True)
        return {names[id]: trees.dump(download) for id, download in downloads if download is not None}

    def state(self) -> Nest:
        """All that a server must keep to go on after a restart, as a nest (`trees.dump` makes bytes of it)."""
        return {
            "slot": self.slot, "next": self._next, "ids": dict(self._ids), "starts": dict(self._starts),
            "kept": dict(self._kept), "begun": self._begun, "state": self._state,
        }  # fmt: skip

    def load_state(self, state: Nest) -> None:
        """Go on from a state."""
        self.slot, self._next, self._ids = state["slot"], state["next"], dict(state["ids"])
        self._starts, self._kept = dict(state["starts"]), dict(state["kept"])
        self._begun, self._state = state["begun"], state["state"]

    def _accepted(self, uploads: Mapping[str, bytes]) -> dict[int, Upload]:
        """The uploads that can be mixed, by device, in the order in which devices joined."""
        self.left_out, sent = {}, dict[int, Upload]()
        for name in sorted(uploads, key=self._id):
            upload = _opened(uploads[name], self._id(name), self.slot)
            if isinstance(upload, Upload):
                like = next(iter(sent.values()), None)
                upload = _fitting(upload, like or self._starts[upload.client], like is not None, self.signs)
            if isinstance(upload, str):
                self.left_out[name] = upload
            else:
                sent[upload.client] = upload
        return sent

    def _id(self, name: str) -> int:
        if name not in self._ids:
            raise ConfigError([f"'{name}' is not in the fleet; {nearest(name, self._ids)}"], "the fleet")
        return self._ids[name]


class Fleet:
    """A server and its devices in one process: devices are made around copies of one model.

    Options are those of the adapter, and what it needs besides the model. `fleet.server` is the part that another
    transport would keep, `Device` the part that it would put on machines of their own.

    >>> net = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
    >>> fleet = Fleet(net, "tent", "fedavg")
    >>> north, south = fleet.join("north"), fleet.join("south")
    >>> downloads = fleet.exchange({"north": north.adapt(torch.rand(4, 2)), "south": south.adapt(torch.rand(4, 2))})
    >>> north.take(downloads["north"])
    >>> north.predict(torch.rand(4, 2)).shape
    torch.Size([4, 2])
    """

    def __init__(
        self,
        model: nn.Module,
        adapter: str | type[Adapter],
        aggregator: Method | Aggregator[Any],
        *,
        seed: int = 0,
        **options: Any,
    ) -> None:
        self.server = Server(aggregator, seed=seed)
        self._model, (self._chosen, self._knowledge) = model, chosen_adapter(adapter, options)

    def join(self, name: str) -> Device:
        """A new device, with the model as it was given."""
        device = Device(around(self._model, self._chosen, self._knowledge), self.server.signs)
        self.server.join(name, device.hello())
        return device

    def exchange(self, uploads: Mapping[str, bytes]) -> dict[str, bytes]:
        """See `Server.exchange`."""
        return self.server.exchange(uploads)

    def leave(self, name: str) -> None:
        """See `Server.leave`."""
        self.server.leave(name)


def _message(adapter: Adapter, sign: Tensor | None, weight: int) -> bytes:
    return trees.dump({"params": adapter.shared(), "signature": sign, "weight": weight})


def _opened(message: bytes, client: int, slot: int) -> Upload | str:
    """A message as an upload, or what is wrong with it."""
    try:
        found = trees.load(message)
        shared, sign, weight = found["params"], found["signature"], float(found["weight"])
    except (ValueError, KeyError, TypeError) as error:
        return f"expected params, signature and weight in a nest of tensors, found something else ({error})"
    if not (isinstance(shared, dict) and all(isinstance(tensor, Tensor) for tensor in shared.values())):
        return "expected params to be tensors by name"
    if not trees.finite([shared, sign]) or not 0 <= weight < float("inf"):
        return "it has values that are not finite"
    return Upload(client, slot, shared, sign, weight)


def _fitting(upload: Upload, like: Upload, shapes: bool, signs: bool) -> Upload | str:
    """An upload, or why it cannot be mixed with another; before the first batch shapes may be others."""
    if upload.params.keys() != like.params.keys():
        return f"expected the tensors {', '.join(like.params)}; found {', '.join(upload.params)}"
    for name, tensor in upload.params.items() if shapes else ():
        other = like.params[name]
        if (tensor.shape, tensor.dtype) != (other.shape, other.dtype):
            return f"'{name}' has shape {list(tensor.shape)} and the others' {list(other.shape)}"
    if signs and upload.signature is None:
        return "it has no signature, and this aggregator needs one: Device(adapted, signs=True)"
    return upload


def _aggregator(given: Method | Aggregator[Any]) -> Aggregator[Any]:
    if isinstance(given, Aggregator):
        return given
    chosen, problems = choose(given, "aggregator", AGGREGATORS, outside=Outside())
    if chosen is None:
        raise ConfigError(problems, "the fleet")
    made: Aggregator[Any] = chosen.made
    return made
