"""`ac.calibrate`: what an adapter needs besides the model, for any model, from a few labelled batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn

from acclimate import params
from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Task
from acclimate.device.inputs import Inputs, adaptable, numbered, widened
from acclimate.device.wrapping import calibrations, guarded, how_to_get
from acclimate.engine.live import Extending, Live
from acclimate.engine.seeds import generator, seed_call
from acclimate.errors import ConfigError, MissingKnowledge, UnsupportedInput, nearest
from acclimate.examples import Examples
from acclimate.experiment.catalog import ADAPTERS, PHASES, SYSTEMS
from acclimate.experiment.choice import Chosen, choose, default_options
from acclimate.experiment.schema import options_of

Batches = Iterable[tuple[Any, Tensor]]  # inputs (a tensor, or several by name) and labels


def calibrate(
    model: nn.Module,
    adapter: str,
    data: Batches | Mapping[Any, Batches],
    *,
    rounds: int | None = None,
    seed: int = 0,
    **options: Any,
) -> dict[Any, Any]:
    """Knowledge for `ac.wrap(model, adapter, **knowledge)`.

    `data` are labelled batches, pairs of inputs and labels, as of a `DataLoader`; several clients are a mapping of
    names to theirs, and then only what the method sends would leave each. Inputs are a tensor, or a mapping of names
    to tensors. `rounds` and options are those of the calibration phase (`acclimate show atp`), and those of an adapter
    whose needs depend on them. What differs from client to client comes as a mapping of their names to the knowledge
    of each. `guard=True` also plays the adapter on streams made of these data and learns when it does harm, for
    `ac.wrap(model, adapter, guard=True, **knowledge)`; `batch_size` is then that of the largest batches to come.

    >>> net = nn.Sequential(nn.Linear(2, 3))
    >>> calibrate(net, "bbse", [(torch.ones(4, 2), torch.tensor([0, 1, 2, 0]))])["confusion"].sum()
    tensor(4., dtype=torch.float64)
    """
    phases = _phases(adapter, options)
    several = isinstance(data, Mapping)
    given: Mapping[Any, Batches] = data if isinstance(data, Mapping) else {"the only client": data}
    owners = {name: _gathered(batches) for name, batches in given.items()}
    if not owners:
        raise UnsupportedInput("expected labelled batches of at least one client, found no client")
    made: dict[Any, Knowledge] = {name: {} for name in owners}
    for phase in phases:
        times = rounds or _published_rounds(adapter, phase.name)
        for name, knowledge in _run(phase.made, model, owners, made, times, seed).items():
            made[name] |= knowledge
    personal = any(phase.made.personal for phase in phases)
    return made if several and personal else next(iter(made.values()))


def _phases(adapter: str, options: dict[str, Any]) -> list[Chosen]:
    """The calibrations that an adapter with these options needs, in their order; what it takes itself is not theirs."""
    if adapter not in ADAPTERS:
        raise ConfigError([f"unknown adapter '{adapter}'; {nearest(adapter, ADAPTERS)}"], "calibrate")
    if options.get("guard") and adapter != "guard":
        _, options = guarded(adapter, options)
        adapter = "guard"
    if adapter == "guard":
        options = {**default_options(ADAPTERS[adapter].load()), **options, "calibrated": True}
    own = set(options_of(ADAPTERS[adapter].load()).model_fields)
    method, problems = choose({"name": adapter, **_among(options, own)}, adapter, ADAPTERS)
    if method is None:
        raise ConfigError(problems, "calibrate")
    known, needs = calibrations(), list(method.made.needs)
    if missing := [need for need in needs if need not in known]:
        raise MissingKnowledge(f"adapter '{adapter}' needs {', '.join(missing)}: {how_to_get(adapter, missing)}")
    found, unknown = [], set(options) - own
    for name in dict.fromkeys(known[need] for need in needs):
        fields = set(options_of(PHASES[name].load()).model_fields)
        unknown -= fields
        chosen, more = choose({"name": name, **_among(options, fields)}, name, PHASES)
        problems += more
        found += [chosen] if chosen else []
    if unknown:  # for the usual message, with the nearest name
        first = next(iter(dict.fromkeys(known[need] for need in needs)), None)
        table, name = (PHASES, first) if first else (ADAPTERS, adapter)
        problems += choose({"name": name, **_among(options, unknown)}, name, table)[1]
    if problems:
        raise ConfigError(problems, "calibrate")
    return sorted(found, key=lambda phase: len(phase.made.needs))  # one that needs what another exports comes after it


def _among(options: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in names}


def _run(
    algorithm: Algorithm[Any, Any],
    model: nn.Module,
    owners: Mapping[Any, _Labelled],
    made: Mapping[Any, Knowledge],
    rounds: int,
    seed: int,
) -> dict[Any, Knowledge]:
    """A phase as the engine runs it, in this process and on any tensors."""
    with torch.random.fork_rng(devices=[]):  # the caller's draws are not ours to change
        net = adaptable(model)
        inputs, build = Inputs(net), lambda client: net
        known: Knowledge = {"model": params.of(net)}
        clients = _clients(algorithm, owners, made, Live(Extending(build)), inputs, known)
        server, states = algorithm.init(clients[0].task), dict[int, Any]()
        for round in range(1, rounds + 1):
            replies = Replies(algorithm.keeps)
            for held, one in zip(owners.values(), clients, strict=True):
                held.arrive(inputs)
                if one.id not in states:
                    seed_call(seed, 0, round, one.id, "client_init")
                    states[one.id] = algorithm.client_init(one)
                seed_call(seed, 0, round, one.id, "client_update")
                message = algorithm.broadcast(server, one.id)
                reply, states[one.id] = algorithm.client_update(message, states[one.id], one)
                replies.add(one.id, reply)
            if replies.weight > 0:
                server = algorithm.server_update(server, replies)
        return {
            name: algorithm.export(algorithm.release(server, one.id), states[one.id], one.id)
            for name, one in zip(owners, clients, strict=True)
        }


def _clients(
    algorithm: Algorithm[Any, Any],
    owners: Mapping[Any, _Labelled],
    made: Mapping[Any, Knowledge],
    live: Live,
    inputs: Inputs,
    known: Knowledge,
) -> list[Client]:
    first = next(iter(owners.values()))
    with torch.no_grad():
        net = live(known["model"]).eval()
        classes = net(first.arrive(inputs).x[:1]).shape[1]
    for name, held in owners.items():
        if not 0 <= int(held.y.min()) <= int(held.y.max()) < classes:
            found = f"{int(held.y.min())} to {int(held.y.max())}"
            raise UnsupportedInput(f"expected labels 0 to {classes - 1}, as the model has classes; {name} has {found}")
    task = Task(classes, cast(Any, tuple(first.x.shape[1:])), tuple(range(len(owners))), lambda _: live(known["model"]))
    clients = []
    for id, (name, held) in enumerate(owners.items()):
        # What is learnt of one's own data and what is chosen on them must not be the same examples.
        train, check = held.cut() if algorithm.personal else (held, held)
        pair = (cast(Examples, train), cast(Examples, check))
        clients.append(Client(id, *pair, task, live, generator(id, "batches"), {**known, **made[name]}))
    return clients


@dataclass(frozen=True)
class _Labelled:
    """One owner's examples, in batches as phases ask for them; inputs by name are held and found by row."""

    x: Tensor
    y: Tensor
    named: Mapping[str, Tensor] | None = None

    def __len__(self) -> int:
        return len(self.y)

    def arrive(self, inputs: Inputs) -> _Labelled:
        """Let the model find this owner's examples."""
        if self.named is not None:
            inputs(**self.named)
        else:
            inputs(self.x[:1])
        return self

    def cut(self) -> tuple[_Labelled, _Labelled]:
        """Four fifths to learn from and one to choose on."""
        last = torch.arange(len(self)) % 5 == 4
        if len(self) < 5:
            raise UnsupportedInput(f"expected at least 5 examples of each client, found {len(self)}")
        return _Labelled(self.x[~last], self.y[~last], self.named), _Labelled(self.x[last], self.y[last], self.named)

    def batches(self, size: int, rng: torch.Generator | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        order = torch.arange(len(self)) if rng is None else torch.randperm(len(self), generator=rng)
        for rows in order.split(size):
            yield self.x[rows], self.y[rows]


def _gathered(batches: Batches) -> _Labelled:
    """All batches of one owner."""
    pairs = list(batches)
    wrong = next((pair for pair in pairs if not isinstance(pair, tuple | list) or len(pair) != 2), None)
    if not pairs or wrong is not None:
        found = "none" if not pairs else type(wrong).__name__
        raise UnsupportedInput(f"expected batches that are pairs (inputs, labels), found {found}")
    y = torch.cat([_labels(*pair, f"batch {number}") for number, pair in enumerate(pairs, 1)])
    if not len(y):
        raise UnsupportedInput("expected labelled examples, found batches without any")
    if not isinstance(pairs[0][0], Mapping):
        return _Labelled(widened(torch.cat([x for x, _ in pairs])), y)
    named = {name: widened(torch.cat([x[name] for x, _ in pairs])) for name in pairs[0][0]}
    rows = next(iter(named.values())) if len(named) == 1 else numbered(len(y))
    return _Labelled(rows, y, named)


def _labels(inputs: Any, labels: Any, batch: str) -> Tensor:
    """The labels of a batch, if there is one for every example."""
    y = torch.as_tensor(labels)
    if y.dim() != 1 or (len(y) and (y.is_floating_point() or y.is_complex() or y.dtype == torch.bool)):
        found = f"{str(y.dtype).removeprefix('torch.')} {list(y.shape)}"
        raise UnsupportedInput(f"expected labels that are whole numbers, one for each example; {batch} has {found}")
    for x in inputs.values() if isinstance(inputs, Mapping) else [inputs]:
        if len(x) != len(y):
            raise UnsupportedInput(f"expected a label for each example; {batch} has {len(x)} examples, {len(y)} labels")
    return y.long()


def _published_rounds(adapter: str, phase: str) -> int:
    phases = SYSTEMS.get(adapter, {}).get("phases", [])
    return next((int(one["rounds"]) for one in phases if one["name"] == phase), 1)
