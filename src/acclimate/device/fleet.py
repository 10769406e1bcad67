"""Devices that help each other: each adapts to what it meets, a server mixes what they share.

Everything that travels is bytes, a nest of tensors as `acclimate.trees` writes it (a safetensors blob, no pickle), so
any transport will do. There are three messages:

    hello     {"params": {name: tensor}, "signature": None, "weight": 0, "limits": {name: [least, greatest]}}
              a device, before it has adapted
    upload    {"params": {name: tensor}, "signature": tensor or None, "weight": images}      after a batch
    download  {name: tensor}      from the server, for one device

`params` is what the adapter shares (`Adapter.shared`), `limits` between which values some of it must lie
(`Adapter.limits`), `signature` the mean feature of the batch at the model as it was shipped, where the aggregator asks
for one (`Server.signs`). Names of devices travel beside the messages.

A server has no model: what messages must look like, it learns from most of them. Whoever sends something else, or
something that no honest device could have sent (`engine.door`), is left out, and everybody else goes on.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from statistics import mode
from typing import Any

import torch
from torch import Tensor, nn

from acclimate import params, trees
from acclimate.aggregators.mixing import origin
from acclimate.contracts import Adapter, Aggregator, Mix, Upload
from acclimate.device.adapted import Adapted
from acclimate.device.wrapping import around, chosen_adapter
from acclimate.engine.door import Door
from acclimate.engine.seeds import seed_call
from acclimate.errors import ConfigError, nearest
from acclimate.experiment.catalog import AGGREGATORS
from acclimate.experiment.choice import choose
from acclimate.experiment.outside import Outside
from acclimate.models.head import signature
from acclimate.trees import Form, Nest

MOST = 10**6  # images in a batch, unless a server is told how many
Method = str | Mapping[str, Any]  # a name, or a mapping with name and options
Pairs = tuple[tuple[str, float, float], ...]  # limits, as they can be counted


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
        return _message(self.adapted.adapter, None, 0, limits=self.adapted.adapter.limits())

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
    """Mixes what devices share. Devices come and go; whoever is absent in an exchange just sends nothing.

    `most` is how many images a batch of a device may have: a message counts by its number.
    """

    def __init__(self, aggregator: Method | Aggregator[Any], *, seed: int = 0, most: int = MOST) -> None:
        self.aggregator = _aggregator(aggregator)
        self.seed, self.most, self.slot = seed, most, 0
        self.left_out: dict[str, str] = {}  # in the last exchange: whose message could not be used, and why
        self._ids: dict[str, int] = {}  # of who is in the fleet; never given twice
        self._next = 0
        self._starts: dict[int, Upload] = {}
        self._limits: dict[int, Pairs] = {}
        self._kept: dict[int, Upload] = {}  # last uploads, by which others are judged; some aggregators go on with them
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
        start = _opened(hello, self._next, self.slot, (0, self.most))
        if isinstance(start, str):
            raise ConfigError([f"the hello of '{name}' cannot be used: {start}"], "the fleet")
        if not start.params:
            raise ConfigError(
                ["this adapter shares nothing, so there is nothing to mix; use another one (bn-adapt, tent, em, bbse)"],
                "the fleet",
            )
        self._ids[name], self._starts[self._next] = self._next, start
        self._limits[self._next] = _limits(hello, start)
        self._next += 1

    def leave(self, name: str) -> None:
        """Let a device go, and forget what is known of it."""
        id = self._id(name)
        del self._ids[name]
        for known in (self._starts, self._limits, self._kept):
            known.pop(id, None)
        if self._begun:
            self._state = self.aggregator.forget(self._state, id)

    def exchange(self, uploads: Mapping[str, bytes]) -> dict[str, bytes]:
        """Downloads for the devices that sent something; who sent what cannot be used is in `left_out`.

        A device whose upload the aggregator set aside gets none.
        """
        names = {self._id(name): name for name in uploads}
        self.left_out, starts = {}, self._sound_starts()
        if not starts:
            return {}  # nobody has joined
        sent, absent = self._accepted({id: uploads[names[id]] for id in sorted(names)}, starts)
        mix = self._mix([*sent.values(), *absent], starts)
        mixed = {id: download for id, download in zip(sent, mix.downloads, strict=True) if download is not None}
        spoilt = {id: "what was mixed for it is not finite" for id, of in mixed.items() if not trees.finite(of)}
        if not spoilt:  # else what made them may be spoilt too
            self._state = trees.transform(params.copy, mix.state)
        self._kept |= {id: upload for id, upload in sent.items() if id not in spoilt}
        self.left_out |= {names[id]: why for id, why in spoilt.items()}
        self.slot += 1
        return {names[id]: trees.dump(download) for id, download in mixed.items() if id not in spoilt}

    def state(self) -> Nest:
        """All that a server must keep to go on after a restart, as a nest (`trees.dump` makes bytes of it)."""
        return {
            "slot": self.slot, "next": self._next, "ids": dict(self._ids), "starts": dict(self._starts),
            "limits": dict(self._limits), "kept": dict(self._kept), "begun": self._begun, "state": self._state,
        }  # fmt: skip

    def load_state(self, state: Nest) -> None:
        """Go on from a state."""
        self.slot, self._next, self._ids = state["slot"], state["next"], dict(state["ids"])
        self._starts, self._kept = dict(state["starts"]), dict(state["kept"])
        self._limits = dict(state.get("limits", {}))  # those of earlier versions have none
        self._begun, self._state = state["begun"], state["state"]

    def _sound_starts(self) -> dict[int, Upload]:
        """Those that look like most of them: where the aggregator begins, only they count."""
        if not self._starts:
            return {}
        faults = _faults(Door(self.most, form=_form(_usual(list(self._starts.values())))), self._starts)
        return {id: start for id, start in self._starts.items() if id not in faults}

    def _accepted(
        self, messages: Mapping[int, bytes], starts: Mapping[int, Upload]
    ) -> tuple[dict[int, Upload], list[Upload]]:
        """The uploads that can be mixed, by device; and the last ones of who is absent, if the aggregator wants any."""
        opened = {id: _opened(message, id, self.slot, (1, self.most), self.signs) for id, message in messages.items()}
        found = {id: upload for id, upload in opened.items() if isinstance(upload, Upload)}
        # Whoever is absent has a say too, lest one that comes alone be the measure of all.
        known, first = {**self._kept, **found}, next(iter(starts.values()))
        form = _form(_usual([upload for upload in known.values() if _grown(upload, first)] or [first]))
        self._forget_others(form)
        limits = {name: (least, most) for name, least, most in mode(self._limits.get(id, ()) for id in starts)}
        faults = _faults(Door(self.most, None, form, limits, origin(list(starts.values()))), known)
        faults |= {id: why for id, why in opened.items() if isinstance(why, str)}
        self.left_out = {name: faults[id] for name, id in self._ids.items() if id in messages and id in faults}
        sent = {id: upload for id, upload in found.items() if id not in faults}
        absent = [upload for id, upload in self._kept.items() if id not in sent and id not in faults]
        return sent, absent if self.aggregator.remembers else []

    def _forget_others(self, form: Form) -> None:
        """Begin anew without uploads that were usual when few had come, and are not any more."""
        strange = [id for id, (_, _, shared, sign, _) in self._kept.items() if form.misfit((shared, sign))]
        for id in strange:
            del self._kept[id]
        self._begun = self._begun and not strange

    def _mix(self, uploads: Sequence[Upload], starts: Mapping[int, Upload]) -> Mix:
        with torch.random.fork_rng(devices=[]):  # the caller's draws are not ours to change
            if not self._begun:
                seed_call(self.seed, "fleet", "init")
                self._state, self._begun = self.aggregator.init(list(starts.values())), True
            seed_call(self.seed, "fleet", self.slot, "mix")
            return self.aggregator.mix(self._state, uploads, self.slot)

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


def _message(adapter: Adapter, sign: Tensor | None, weight: int, **more: Nest) -> bytes:
    return trees.dump({"params": adapter.shared(), "signature": sign, "weight": weight, **more})


def _opened(message: bytes, client: int, slot: int, images: tuple[int, int], signs: bool = False) -> Upload | str:
    """A message as an upload, or what is wrong with it; a signature that nobody asked for does not count."""
    try:
        found = trees.load(message)
        shared, sign, weight = found["params"], found["signature"] if signs else None, found["weight"]
        finite = trees.finite([shared, sign])
    except (ValueError, LookupError, TypeError, RuntimeError) as error:
        return f"expected params, signature and weight in a nest of tensors, found something else ({error})"
    if not isinstance(shared, dict) or not all(isinstance(n, str) and isinstance(t, Tensor) for n, t in shared.items()):
        return "expected params to be tensors by name"
    if signs and sign is None:
        return "it has no signature, and this aggregator needs one: Device(adapted, signs=True)"
    if signs and not (isinstance(sign, Tensor) and sign.dim() == 1 and sign.is_floating_point()):
        return "expected the signature to be a vector of numbers, as Device(adapted, signs=True) sends it"
    least, most = images
    if not isinstance(weight, int | float) or not least <= weight <= most:
        return f"its weight is no number of images from {least} to {most}; if batches are larger: Server(..., most=...)"
    return Upload(client, slot, shared, sign, float(weight)) if finite else "it has values that are not finite"


def _limits(hello: bytes, start: Upload) -> Pairs:
    """Between which values tensors must lie, as a device says it; one of an earlier version says nothing."""
    try:
        said = trees.load(hello).get("limits", {}).items()
        return tuple((name, float(least), float(most)) for name, (least, most) in said if name in start.params)
    except (ValueError, TypeError, AttributeError, ArithmeticError, RuntimeError):
        return ()


def _form(upload: Upload) -> Form:
    return Form((upload.params, upload.signature))


def _faults(door: Door, uploads: Mapping[int, Upload]) -> dict[int, str]:
    return door.faults(uploads, {id: (id, upload.slot) for id, upload in uploads.items()})


def _usual(uploads: Sequence[Upload]) -> Upload:
    """One that looks like most of them; of several kinds, the first."""
    looks = [
        tuple((name, tensor if tensor is None else (tensor.dtype, tensor.shape)) for name, tensor in named)
        for named in ([*upload.params.items(), ("signature", upload.signature)] for upload in uploads)
    ]
    return uploads[looks.index(mode(looks))]


def _grown(upload: Upload, start: Upload) -> bool:
    """Whether an upload has the tensors of a start; one that was still empty then may have any shape."""
    return upload.params.keys() == start.params.keys() and all(
        not before.numel() or (before.dtype, before.shape) == (now.dtype, now.shape)
        for before, now in ((before, upload.params[name]) for name, before in start.params.items())
    )


def _aggregator(given: Method | Aggregator[Any]) -> Aggregator[Any]:
    if isinstance(given, Aggregator):
        return given
    chosen, problems = choose(given, "aggregator", AGGREGATORS, outside=Outside())
    if chosen is None:
        raise ConfigError(problems, "the fleet")
    made: Aggregator[Any] = chosen.made
    return made
