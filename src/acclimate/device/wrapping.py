"""`ac.wrap`: an adapter around any torch classifier."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from acclimate import params
from acclimate.contracts import Adapter
from acclimate.device.adapted import Adapted, Method
from acclimate.device.inputs import Inputs, adaptable, dtype_of
from acclimate.errors import ConfigError, MissingKnowledge, nearest
from acclimate.experiment.catalog import ADAPTERS, CALIBRATION, TRAINING, Entry
from acclimate.experiment.choice import Chosen, choose
from acclimate.experiment.outside import Outside
from acclimate.experiment.schema import options_of
from acclimate.plugins import is_plugin


def wrap(model: nn.Module, adapter: str | type[Adapter], **options: Any) -> Adapted:
    """Put an adapter around a copy of any torch classifier.

    The result adapts and predicts when it is called as the model is; your model stays as it is. Options are those of
    the adapter (`acclimate show tent`); what an adapter needs besides the model, such as BBSE's confusion matrix, is
    given by name too (`ac.calibrate` makes it). An option that is a method is a name, or a mapping with name and
    options: `wrap(model, "tta-grad", term={"name": "fedprox", "mu": 0.1})`. An adapter of your own is its class.
    `guard=True` puts a guard around it (`acclimate show guard`), `guard={"every": 5}` one with other options; with
    what `ac.calibrate(model, adapter, batches, guard=True)` gives it knows this adapter on this model.

    >>> from torch import nn, ones
    >>> wrap(nn.Sequential(nn.Linear(2, 3)), "em")(ones(4, 2)).shape
    torch.Size([4, 3])
    """
    chosen, knowledge = chosen_adapter(adapter, options)
    return around(model, chosen, knowledge)


def around(model: nn.Module, chosen: Chosen, knowledge: dict[str, Any]) -> Adapted:
    """The adapter that was chosen, around a copy of a model."""
    with torch.inference_mode(False):
        net = adaptable(model)
        source, inputs = params.of(net), Inputs(net)
        made: Adapter = chosen.made(net, **knowledge)
        return Adapted(made, inputs, method_of(chosen, knowledge), dtype_of(model), source)


def method_of(chosen: Chosen, knowledge: dict[str, Any]) -> Method:
    """A chosen adapter, in words."""
    options = {key: value for key, value in chosen.plain.items() if key != "name"}
    names = dict.fromkeys([chosen.name, *(inner.name for inner in chosen.inner)])
    return Method(chosen.name, options, knowledge, [ADAPTERS[name].takes for name in names if name in ADAPTERS])


def chosen_adapter(adapter: str | type[Adapter], options: dict[str, Any]) -> tuple[Chosen, dict[str, Any]]:
    """An adapter with its options, and what it needs besides the model."""
    asked = adapter if isinstance(adapter, str) else adapter.__name__
    if "guard" in options and asked != "guard":
        adapter, options = guarded(adapter, options)
    elif asked == "guard" and "rule" in options:
        options = {"calibrated": True, **options}
    name, table = _table(adapter)
    target, outside = (table[name].load(), Outside()) if name in table else (Outside().load(name, ADAPTERS), Outside())
    known = options_of(target).model_fields
    own = {"name": name, **{key: value for key, value in options.items() if key in known}}
    chosen, problems = choose(own, name, table, outside=outside)
    needs = chosen.made.needs if chosen else target.needs  # what is needed may depend on the options
    rest = {key: value for key, value in options.items() if key not in known and key not in needs}
    if rest or chosen is None:
        raise ConfigError(choose({**own, **rest}, name, table, outside=outside)[1] or problems, "wrap")
    if missing := [need for need in needs if need not in options]:
        raise MissingKnowledge(f"adapter '{asked}' needs {', '.join(missing)}: {how_to_get(asked, missing)}")
    return chosen, {need: options[need] for need in needs}


def guarded(adapter: str | type[Adapter], options: Mapping[str, Any]) -> tuple[str | type[Adapter], dict[str, Any]]:
    """What `guard=True`, or a mapping of the guard's options, stands for: a guard around the adapter."""
    guard, rest = options["guard"], {key: value for key, value in options.items() if key != "guard"}
    if guard in (False, None):
        return adapter, rest
    if not isinstance(guard, Mapping) and guard is not True:
        raise ConfigError([f"guard: expected true or a mapping of the guard's options; found {guard!r}"], "wrap")
    if not isinstance(adapter, str):
        raise ConfigError(
            [f"guard: expected an adapter by its name; write that of {adapter.__name__}: './file.py:Class'"], "wrap"
        )
    _table(adapter)
    target = Outside().load(adapter, ADAPTERS) if is_plugin(adapter) else ADAPTERS[adapter].load()
    known = set(options_of(target).model_fields)
    inner = {"name": adapter, **{key: value for key, value in rest.items() if key in known}}
    own = {key: value for key, value in rest.items() if key not in known}
    return "guard", {"adapter": inner, "calibrated": "rule" in rest, **(guard if guard is not True else {}), **own}


def how_to_get(adapter: str, needs: list[str]) -> str:
    """What to do for knowledge that an adapter lacks."""
    if set(needs) <= set(calibrations()):
        return (
            f"knowledge = ac.calibrate(model, '{adapter}', batches) with a few labelled batches, "
            f"then ac.wrap(model, '{adapter}', **knowledge)"
        )
    phases = [name for name, entry in TRAINING.items() if set(needs) & set(entry.load()().exports)]
    return (
        f"it comes from training ({', '.join(phases) or 'a phase of your own'}): run an experiment with the system "
        f"'{adapter}', then take it out with `acclimate export`"
    )


def calibrations() -> dict[str, str]:
    """What can be learnt for any model from labelled batches, and the phase that does it; of several, the first."""
    phases = {name: entry.load()() for name, entry in reversed(CALIBRATION.items())}
    return {export: name for name, phase in phases.items() if phase.needs == ("model",) for export in phase.exports}


@dataclass(frozen=True)
class _Given(Entry):
    """A class that was given as such."""

    kind: Any = None

    def load(self) -> Any:
        return self.kind


def _table(adapter: str | type[Adapter]) -> tuple[str, dict[str, Entry]]:
    if isinstance(adapter, str):
        if adapter not in ADAPTERS and not is_plugin(adapter):
            raise ConfigError([f"unknown adapter '{adapter}'; {nearest(adapter, ADAPTERS)}"], "wrap")
        return adapter, ADAPTERS
    if not (inspect.isclass(adapter) and issubclass(adapter, Adapter)):
        raise ConfigError([f"expected the name of an adapter or a subclass of ac.Adapter; found {adapter!r}"], "wrap")
    return adapter.__name__, {**ADAPTERS, adapter.__name__: _Given("", "", kind=adapter)}
