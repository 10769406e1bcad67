"""What distinguishes runs: the keys of their experiments that differ."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from acclimate.store.run import Run

MOST_KEYS = 3  # in a label


def labels(runs: Sequence[Run]) -> list[str]:
    """What tells runs apart: the first key of their experiments that does for all, else all keys that differ."""
    plain = [flat({**run.experiment, "name": None}) for run in runs]
    keys = _differing(plain)
    telling = [key for key in keys if len({one.get(key) for one in plain}) == len(runs)]
    chosen = telling[:1] or keys
    everywhere = len(keys) > 1 and len(set(map(_shared, keys))) == 1  # in all systems alike
    shown = {key: _shared(key) if everywhere else key for key in chosen}
    made = [", ".join(f"{shown[key]}={one.get(key, 'none')}" for key in chosen) for one in plain]
    return made if len(set(made)) == len(runs) and len(chosen) <= MOST_KEYS else [run.name for run in runs]


def differing(runs: Sequence[Run]) -> dict[str, list[str | None]]:
    """Key → its value in each run, where they differ; None: the run has no such key."""
    plain = [flat(run.experiment) for run in runs]
    return {key: [one.get(key) for one in plain] for key in _differing(plain)}


def flat(plain: Any, path: str = "") -> dict[str, str]:
    """Nested plain data as dotted keys, as overrides are written.

    >>> flat({"test": {"reset": "never"}, "systems": [{"name": "tent", "lr": 0.1}]})
    {'test.reset': 'never', 'systems.tent.name': 'tent', 'systems.tent.lr': '0.1'}
    """
    if isinstance(plain, dict):
        items = list(plain.items())
    elif isinstance(plain, list) and any(isinstance(item, dict) for item in plain):
        items = [(item.get("name", at), item) for at, item in enumerate(plain)]
    else:
        return {path: str(plain)}
    return {k: v for key, item in items for k, v in flat(item, f"{path}.{key}" if path else str(key)).items()}


def _shared(key: str) -> str:
    """What is left of a key without the system that has it, for what all systems share.

    >>> _shared("systems.tent.phases.fedavg.rounds"), _shared("scenario.noise")
    ('phases.fedavg.rounds', 'scenario.noise')
    """
    return key.split(".", 2)[2] if key.startswith("systems.") and key.count(".") > 1 else key


def _differing(plain: Sequence[dict[str, str]]) -> list[str]:
    return [key for key in dict.fromkeys(chain(*plain)) if len({one.get(key) for one in plain}) > 1]
