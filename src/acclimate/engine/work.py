"""What an executor lets clients do: a phase or a test, opened where the clients are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from acclimate.engine.client import Clients


class Doing(Protocol):
    """Clients at work, in the process where they are."""

    def do(self, task: Any) -> Any:
        """One client's task."""

    def fold(self, results: Iterable[tuple[Any, Any]]) -> Any:
        """What is left of a chunk: tasks with their results, in order."""


class Work(Protocol):
    """A phase or a test, as clients need to know it; must be picklable."""

    def open(self, clients: Clients) -> Doing: ...


def each_done(doing: Doing, tasks: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
    """Tasks with their results, one at a time, so that only one is held."""
    return ((task, doing.do(task)) for task in tasks)
