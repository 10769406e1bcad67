"""Testing on another scenario than the one trained on, but never on an image that was trained on.

Two scenarios deal the same images to their clients in different ways: what is new to a test client of one may be a
training image of a source client of the other. Validation parts may still be met: no model was trained on them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from acclimate.errors import ConfigError
from acclimate.scenarios.population import Blend, Holding, Plan, Population, Scenario, StreamPlan


def unseen(tested: Scenario, trained: Scenario, seed: int) -> Population:
    """The population of `tested` without the images that source clients of `trained` train on."""
    before = trained.plan(trained.seed_of(seed))
    shared = {field.name: getattr(tested, field.name) for field in fields(Scenario)}
    return _Unseen(**shared, tested=tested, before=before).build(seed)


@dataclass(frozen=True, kw_only=True)
class _Unseen(Scenario):
    tested: Scenario
    before: Plan

    def plan(self, seed: int) -> Plan:
        return without(self.tested.plan(seed), self.before)


def without(plan: Plan, trained: Plan) -> Plan:
    """A plan whose streams hold no image that another's source clients train on; streams of nothing else are gone."""
    if plan.dataset.digest != trained.dataset.digest:
        return plan
    seen = np.concatenate([np.zeros(0, np.int64), *(train.rows for train, _ in trained.source.values())])
    streams = []
    for client, name, segments in plan.streams:
        left = [rest for segment in segments if (rest := _rest(segment, seen)) is not None]
        streams += [StreamPlan(client, name, left)] if left else []
    if not streams:
        raise ConfigError(["test.scenario: every image of its streams was trained on; take other clients or data"])
    return replace(plan, streams=streams)


def _rest(segment: Holding | Blend, seen: NDArray[np.int64]) -> Holding | Blend | None:
    parts = segment.parts if isinstance(segment, Blend) else [segment]
    new = [~np.isin(part.rows, seen) for part in parts]
    left = [part._replace(rows=part.rows[keep]) for part, keep in zip(parts, new, strict=True)]
    if not any(len(part.rows) for part in left):
        return None
    if not isinstance(segment, Blend):
        return left[0]
    keep = np.concatenate(new)
    return segment._replace(parts=left, order=(np.cumsum(keep) - 1)[segment.order[keep[segment.order]]])
