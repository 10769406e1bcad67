"""Whom systems are compared with: the same without adaptation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from acclimate.experiment.catalog import ADAPTERS
from acclimate.experiment.choice import choose
from acclimate.experiment.experiment import System


def with_baselines(systems: Sequence[System]) -> tuple[list[System], dict[str, str]]:
    """The systems and, for each, the name of its baseline, added if missing.

    That is the one without adaptation that has the same model, training phases and test.
    """
    everything, baseline = list(systems), {}
    for system in systems:
        found = [other.name for other in everything if _is_baseline(other, system)]
        if not found:
            taken = {other.name for other in everything}
            name = "none" if "none" not in taken else f"none for {system.name}"
            added = replace(unadapted(system), name=name, phases=system.training, select=False)
            everything.insert(everything.index(system), added)
            found = [name]
        baseline[system.name] = found[0]
    return everything, {**{other.name: other.name for other in everything}, **baseline}


def unadapted(system: System) -> System:
    """A system that is tested as it was trained."""
    none, _ = choose("none", "adapter", ADAPTERS)
    assert none is not None
    return replace(system, adapter=none, aggregator=None, tune=())


def _is_baseline(other: System, system: System) -> bool:
    alone = other.adapter.name == "none" and other.aggregator is None and not other.select
    same = (other.model, other.training, other.test) == (system.model, system.training, system.test)
    return alone and same
