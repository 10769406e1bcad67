"""Whether a result can be one of the task it is said to be of: what a node sends is looked at before it is used.

Names, shapes and values of replies and uploads are looked at by the engine's door; here, the records around them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from acclimate import trees
from acclimate.engine.client import Figure, Paused, Score, Stretch, Took, Training, Trial
from acclimate.engine.known import Elsewhere
from acclimate.trees import Parcel


def fault(work: Training | Trial, task: Any, result: Any) -> str | None:
    """What is wrong with a result; None: nothing."""
    if isinstance(work, Training):
        return _fault_of_round(result)
    return _fault_of_stretch(work.members[task.member], result)


def _fault_of_round(took: Any) -> str | None:
    if not isinstance(took, Took):
        return f"a {type(took).__name__} for a round"
    if not (took.state is None or _is_elsewhere(took.state)):
        return "a state, which is to stay where it is"
    if not all(isinstance(size, int) for size in (took.bytes_down, took.bytes_up)):
        return "sizes that are no numbers"
    return None


def _fault_of_stretch(member: tuple[int, str], found: Any) -> str | None:
    if not isinstance(found, Stretch) or not isinstance(found.scores, list) or not isinstance(found.figures, list):
        return f"a {type(found).__name__} for a part of a stream"
    if not isinstance(found.slot, int) or found.slot < 0 or not isinstance(found.ended, bool):
        return "a slot that cannot be"
    if not all(_is_score(score, member) for score in found.scores):
        return "scores that cannot be this client's"
    if not all(_is_figure(figure, member) for figure in found.figures):
        return "figures that cannot be this client's"
    if not all(parcel is None or isinstance(parcel, Parcel) for parcel in (found.upload, found.start)):
        return "an upload that is none"
    if not (found.paused is None or _is_paused(found.paused)):
        return "a state, which is to stay where it is"
    return "an end without its place" if found.ended and found.paused is None else None


def _is_elsewhere(state: Any) -> bool:
    content = state.open() if isinstance(state, Parcel) else None
    return isinstance(content, Elsewhere) and isinstance(content.digest, str)


def _is_paused(paused: Any) -> bool:
    if not isinstance(paused, Paused) or not isinstance(paused.slot, int) or paused.welcomed is not None:
        return False
    rows = paused.tally if isinstance(paused.tally, list) else [None]
    counts = all(isinstance(row, list) and all(isinstance(n, int) for n in row) for row in rows)
    return counts and (paused.state is None or _is_elsewhere(paused.state))


def _is_score(score: Any, member: tuple[int, str]) -> bool:
    if not isinstance(score, Score) or (score.client, score.stream) != member or not isinstance(score.values, Mapping):
        return False
    numbers = all(isinstance(value, float) and math.isfinite(value) for value in score.values.values())
    names = all(isinstance(name, str) for name in (score.shift, *score.values))
    return numbers and names and isinstance(score.slot, int) and score.slot >= -1


def _is_figure(figure: Any, member: tuple[int, str]) -> bool:
    if not isinstance(figure, Figure) or (figure.client, figure.stream) != member or not isinstance(figure.slot, int):
        return False
    try:
        return isinstance(trees.load(figure.values), dict)
    except ValueError:
        return False
