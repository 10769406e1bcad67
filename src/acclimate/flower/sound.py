"""Whether a result can be one of the task it is said to be of: what a node sends is looked at before it is used.

Names, shapes and values of replies and uploads are looked at by the engine's door; here, the records around them. The
server knows how streams are cut into slots, and so which slots an answer is about and how many images these have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from torch import Tensor

from acclimate import trees
from acclimate.engine.client import Clients
from acclimate.engine.door import is_same
from acclimate.engine.known import Elsewhere
from acclimate.engine.messages import Alone, Begin, Figure, GoOn, Paused, Score, Stretch, Took
from acclimate.engine.tester import Trial
from acclimate.engine.trainee import Training
from acclimate.experiment.predictions import ANSWERS
from acclimate.scenarios.population import Slot
from acclimate.trees import Parcel

WHOLE = -1  # the slot of a score of the whole stream
MOST_SECONDS = 1e6  # for one batch


class _Stream(NamedTuple):
    """A client's stream, as the server knows it before an answer."""

    client: int
    name: str
    slots: Sequence[Slot]
    at: int  # the slot that the client stands at
    classes: int
    losses: bool  # whether they are measured too

    def images(self, slot: int) -> int:
        """How many a slot has; all of them where it is the whole stream."""
        chosen = self.slots if slot == WHOLE else [self.slots[slot]]
        return sum(len(held.rows) for one in chosen for held in one.parts)


def fault(work: Training | Trial, clients: Clients, task: Any, at: int, result: Any) -> str | None:
    """What is wrong with a result of a client that stands at a slot; None: nothing."""
    if isinstance(work, Training):
        return _fault_of_round(result)
    (client, name), test = work.members[task.member], work.test
    slots = clients.slots(client, name, test.batch_size)
    return _fault_of_stretch(task, _Stream(client, name, slots, at, clients.people.classes, test.convergence), result)


def _fault_of_round(took: Any) -> str | None:
    if not isinstance(took, Took):
        return f"a {type(took).__name__} for a round"
    if not (took.state is None or _is_elsewhere(took.state)):
        return "a state, which is to stay where it is"
    return None if _is_count(took.bytes_down) and _is_count(took.bytes_up) else "sizes that are no numbers"


def _fault_of_stretch(task: Alone | Begin | GoOn, stream: _Stream, found: Any) -> str | None:
    if not isinstance(found, Stretch) or not isinstance(found.scores, list) or not isinstance(found.figures, list):
        return f"a {type(found).__name__} for a part of a stream"
    if not _stands_well(task, stream, found):
        return "a slot that cannot be"
    if not _are_scores(found, stream):
        return "scores that cannot be this client's"
    if not _are_figures(found, stream):
        return "figures that cannot be this client's"
    if not all(parcel is None or isinstance(parcel, Parcel) for parcel in (found.upload, found.start)):
        return "an upload that is none"
    # Whoever goes on alone, or is at the end, says where it stands; whoever waits for an exchange does not.
    if not (_is_paused(found.paused, found) if found.ended or isinstance(task, Alone) else found.paused is None):
        return "no place where it stands, or more of it than is to leave the node"
    return None


def _stands_well(task: Alone | Begin | GoOn, stream: _Stream, found: Stretch) -> bool:
    """At the end, or where it was to stop; whoever goes on alone stops anywhere, but not at once."""
    if not _is_count(found.slot) or found.ended is not (found.slot == len(stream.slots)):
        return False
    if found.ended:
        return True
    return stream.at < found.slot < len(stream.slots) if isinstance(task, Alone) else found.slot == task.stop


def _are_scores(found: Stretch, stream: _Stream) -> bool:
    """Whether there is one for each slot since the last answer, and at the end one for all of them."""
    slots = [*range(stream.at, found.slot), *([WHOLE] if found.ended else [])]
    return len(found.scores) == len(slots) and all(
        isinstance(score, Score)
        and is_same(score[:4], (stream.client, stream.name, slot, "" if slot == WHOLE else stream.slots[slot].shift))
        and isinstance(score.values, Mapping)
        and _are_values(score.values, stream, slot)
        for score, slot in zip(found.scores, slots, strict=True)
    )


def _are_values(values: Mapping[Any, Any], stream: _Stream, slot: int) -> bool:
    """Whether all of them are known, and no more images correct than seen, nor seen than there are."""
    ends = [f"/{label}" for label in range(stream.classes)] if slot == WHOLE else [""]
    most = {f"{what}{end}": float(stream.images(slot)) for what in ("correct", "count") for end in ends}
    if slot != WHOLE:
        most |= {"seconds": MOST_SECONDS, "stepped_in": 1.0, "left_out": 1.0}
        most |= {"loss": math.inf} if stream.losses else {}
    known = all(
        isinstance(v, float) and math.isfinite(v) and 0 <= v <= most.get(name, -1) for name, v in values.items()
    )
    counted = [(values.get(f"correct{end}", 0.0), values.get(f"count{end}", 0.0)) for end in ends]
    return (
        known
        and (slot == WHOLE or {"correct", "count"} <= values.keys())
        and all(correct <= count for correct, count in counted)
        and sum(count for _, count in counted) <= stream.images(slot)
    )


def _are_figures(found: Stretch, stream: _Stream) -> bool:
    """Whether there is at most one for each slot since the last answer."""
    if not all(isinstance(figure, Figure) and _is_count(figure.slot) for figure in found.figures):
        return False
    slots = [stream.at - 1, *(figure.slot for figure in found.figures), found.slot]
    return all(a < b for a, b in pairwise(slots)) and all(_is_figure(figure, stream) for figure in found.figures)


def _is_figure(figure: Figure, stream: _Stream) -> bool:
    """Whether it is this client's, and tensors by name; what was predicted is to stay on the node."""
    if not is_same(figure[:2], (stream.client, stream.name)) or not isinstance(figure.values, bytes):
        return False
    try:
        drawn = trees.load(figure.values)
    except ValueError:
        return False
    return isinstance(drawn, dict) and all(
        isinstance(name, str) and name not in ANSWERS and isinstance(one, Tensor) for name, one in drawn.items()
    )


def _is_paused(paused: Any, found: Stretch) -> bool:
    if not isinstance(paused, Paused) or not is_same(paused[:1], (found.slot,)) or paused.welcomed is not None:
        return False
    rows = paused.tally if isinstance(paused.tally, list) else [None]
    counts = all(isinstance(row, list) and all(map(_is_count, row)) for row in rows)
    return counts and (paused.state is None if found.ended else _is_elsewhere(paused.state))


def _is_elsewhere(state: Any) -> bool:
    content = state.open() if isinstance(state, Parcel) else None
    return isinstance(content, Elsewhere) and isinstance(content.digest, str)


def _is_count(value: Any) -> bool:
    """Whether it is a whole number from 0 that can be saved."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
