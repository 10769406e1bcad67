"""Acclimate: train a model across clients that keep their data, then let it adapt, without labels.

Everything below is imported when it is first used, so that `import acclimate` is quick and a device that loads a
bundle needs no more than torch, numpy, safetensors and annotated-types.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from acclimate.version import __version__

if TYPE_CHECKING:
    from acclimate.api import Run, read, run
    from acclimate.contracts import (
        Adapter,
        AdapterRecipe,
        Aggregator,
        Algorithm,
        Client,
        Mix,
        Replies,
        Reply,
        Task,
        Upload,
    )
    from acclimate.device.adapted import Adapted
    from acclimate.device.bundle import load
    from acclimate.device.calibrate import calibrate
    from acclimate.device.fleet import Device, Fleet, Server
    from acclimate.device.wrapping import wrap
    from acclimate.engine.evaluate import evaluate
    from acclimate.engine.train import train
    from acclimate.scenarios.population import Scenario

_WHERE = {
    "acclimate.api": ("Run", "read", "run"),
    "acclimate.contracts": (
        "Adapter", "AdapterRecipe", "Aggregator", "Algorithm", "Client", "Mix", "Replies", "Reply", "Task", "Upload",
    ),
    "acclimate.device.adapted": ("Adapted",),
    "acclimate.device.bundle": ("load",),
    "acclimate.device.calibrate": ("calibrate",),
    "acclimate.device.fleet": ("Device", "Fleet", "Server"),
    "acclimate.device.wrapping": ("wrap",),
    "acclimate.engine.evaluate": ("evaluate",),
    "acclimate.engine.train": ("train",),
    "acclimate.scenarios.population": ("Scenario",),
}  # fmt: skip
_MODULE = {name: module for module, names in _WHERE.items() for name in names}

__all__ = [
    "Adapted", "Adapter", "AdapterRecipe", "Aggregator", "Algorithm", "Client", "Device", "Fleet", "Mix", "Replies",
    "Reply", "Run", "Scenario", "Server", "Task", "Upload", "__version__", "calibrate", "evaluate", "load", "read",
    "run", "train", "wrap",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'acclimate' has no attribute '{name}'")
    return getattr(importlib.import_module(_MODULE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE})
