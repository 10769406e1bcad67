"""How far things are: a live bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from acclimate.errors import shown


class Bars:
    """A bar per phase or test; finished ones leave one line."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("[dim]{task.fields[note]}"),
            console=console,
            transient=True,
        )

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, title: str, total: int) -> None:
        self._title, self._since, self._done = _plain(title), time.monotonic(), 0
        self._task = self._progress.add_task(self._title, total=total, note="")

    def step(self, done: int, text: str) -> None:
        self._done = done
        self._progress.update(self._task, completed=done, note=_plain(text))

    def end(self) -> None:
        self._progress.remove_task(self._task)
        if self._done:
            self._progress.console.print(f"[dim]{self._title}: {time.monotonic() - self._since:.1f} s", highlight=False)

    def say(self, text: str) -> None:
        self._progress.console.print(_plain(text), highlight=False)


class Lines:
    """Plain lines: one every few seconds, with the time left, and one at the end."""

    EVERY = 5.0  # seconds

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None: ...

    def begin(self, title: str, total: int) -> None:
        self._title, self._total, self._since = _plain(title), total, time.monotonic()
        self._first: int | None = None
        self._last, self._ended = self._since, False

    def step(self, done: int, text: str) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = done - 1  # a resumed phase does not start at zero
        if self._ended or (done < self._total and now - self._last < self.EVERY):
            return
        rate = (now - self._since) / max(done - self._first, 1)
        left = f", {rate * (self._total - done):.0f} s left" if done < self._total else f", {now - self._since:.1f} s"
        self._last, self._ended = now, done == self._total
        note = f" ({_plain(text)})" if text else ""
        self._console.print(f"{self._title}: {done}/{self._total}{left}{note}", highlight=False, soft_wrap=True)

    def end(self) -> None: ...

    def say(self, text: str) -> None:
        self._console.print(_plain(text), highlight=False)


def _plain(text: str) -> str:
    """A text of somebody's that stays what it is: neither markup nor control characters have any effect."""
    return escape(shown(text))
