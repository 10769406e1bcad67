"""Letters as Flower's messages, and the line over its grid."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from acclimate.engine.messages import Lost
from acclimate.flower.codec import Letter

TEXT, BLOBS = "letter", "blobs"
FIRST_LOOK, LONGEST_LOOK = 0.05, 1.0  # seconds between looks for answers: soon at first, then more seldom


def to_records(letter: Letter) -> RecordDict:
    """A letter as Flower's records: a blob is one array, so that Flower fetches it at once."""
    arrays = {
        name: Array(dtype="uint8", shape=(len(blob),), stype="safetensors", data=blob)
        for name, blob in letter.blobs.items()
    }
    return RecordDict({TEXT: ConfigRecord({"json": letter.text}), BLOBS: ArrayRecord(arrays)})


def of_records(records: RecordDict) -> Letter:
    """The letter again; whatever it is not raises ValueError."""
    try:
        text, arrays = records.config_records[TEXT]["json"], records.array_records[BLOBS]
        return Letter(str(text), {name: bytes(array.data) for name, array in arrays.items()})
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no letter of acclimate's ({type(error).__name__}: {error})") from error


class GridLine:
    """Letters over a grid of Flower's, real or simulated."""

    def __init__(self, grid: Any, ended: Callable[[], bool] = lambda: False) -> None:
        self._grid, self._ended = grid, ended

    def nodes(self) -> list[int]:
        return [int(node) for node in self._grid.get_node_ids()]

    def ask(self, kind: str, letters: Mapping[int, Letter], seconds: float) -> Iterator[tuple[int, Letter | Lost]]:
        messages = [Message(to_records(letter), node, kind, ttl=seconds) for node, letter in letters.items()]
        ids = list(self._grid.push_messages(messages))
        waiting = {id: node for id, node in zip(ids, letters, strict=True) if id}
        yield from (
            (node, Lost("Flower could not send to its node")) for node in letters if node not in waiting.values()
        )
        end, look = time.monotonic() + seconds, FIRST_LOOK
        while waiting and time.monotonic() < end:
            for reply in self._grid.pull_messages(list(waiting)):
                node = waiting.pop(reply.metadata.reply_to_message_id, None)
                if node is not None:
                    yield node, _answer(reply)
                    look = FIRST_LOOK
            if self._ended():
                raise KeyboardInterrupt
            if waiting:
                time.sleep(look)
                look = min(2 * look, LONGEST_LOOK)
        yield from ((node, Lost(f"no answer within {seconds:g} s")) for node in waiting.values())


def _answer(reply: Any) -> Letter | Lost:
    if reply.has_error():
        return Lost(f"Flower reports: {reply.error.reason or f'error {reply.error.code}'}"[:500])
    try:
        return of_records(reply.content)
    except ValueError as error:
        return Lost(f"its node sent {error}")
