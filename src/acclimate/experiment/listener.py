"""Who is told how far a run is."""

from __future__ import annotations

from typing import Protocol


class Listener(Protocol):
    """Whoever wants to know how far things are."""

    def begin(self, title: str, total: int) -> None: ...

    def step(self, done: int, text: str) -> None: ...

    def end(self) -> None: ...

    def say(self, text: str) -> None: ...


class Silent:
    """Nobody wants to know."""

    def begin(self, title: str, total: int) -> None: ...

    def step(self, done: int, text: str) -> None: ...

    def end(self) -> None: ...

    def say(self, text: str) -> None: ...
