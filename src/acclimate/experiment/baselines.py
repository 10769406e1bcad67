"""Whom systems are compared with: the same without adaptation."""

from __future__ import annotations

from collections.abc import Sequence

from acclimate.experiment.catalog import ADAPTERS
from acclimate.experiment.experiment import Chosen, System
from acclimate.experiment.schema import check


def with_baselines(systems: Sequence[System]) -> tuple[list[System], dict[str, str]]:
    """The systems and, for each, the name of the one without adaptation on the same phases, added if missing."""
    target = ADAPTERS["none"].load()
    none = Chosen("none", target, {}, {"name": "none", **check(target, {}, "")[1]})
    everything, baseline = list(systems), {}
    for system in systems:
        training = system.training()
        found = [
            other.name
            for other in everything
            if other.adapter.name == "none" and other.aggregator is None and other.training() == training
            and not other.select
        ]  # fmt: skip
        if not found:
            taken = {other.name for other in everything}
            name = "none" if "none" not in taken else f"none for {system.name}"
            phases = tuple(phase for phase in system.phases if phase.trains)
            everything.insert(everything.index(system), System(name, phases, none))
            found = [name]
        baseline[system.name] = found[0]
    return everything, {**{other.name: other.name for other in everything}, **baseline}
