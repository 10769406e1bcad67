"""Interleaved timing, memory of a process, and the lines of the table."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

MB = 1e6


class Line(NamedTuple):
    """One requirement, and what was measured."""

    what: str
    value: float
    low: float
    high: float
    required: str
    met: bool | None = None  # None: a figure to know, with no number to meet

    def __str__(self) -> str:
        spread = f"{self.low:.2f} to {self.high:.2f}"
        mark = "" if self.met is None else "ok" if self.met else "MISSED"
        return f"{self.what:<68} {self.value:>6.2f}   {spread:<16} {self.required:<8} {mark}"


class Grown(NamedTuple):
    """A point of a curve for the page."""

    what: str
    side: str
    clients: int
    value: float


GROWTH: list[Grown] = []  # filled by the benchmarks of a run


def interleave(
    sides: Mapping[str, Callable[[], object]],
    repeats: int,
    budget: float = 45.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of each side, run in turn (A B C, A B C, ...): what else the machine does hits all alike.

    On a busy machine it may take too long: then fewer turns, once the budget of seconds is used up.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    begin, longest = time.perf_counter(), 0.0
    for turn in range(repeats):
        if turn and time.perf_counter() - begin + longest > budget:
            print(f"  only {turn} of {repeats} turns, for want of time")
            break
        for name, side in sides.items():
            start = clock()
            side()
            seconds[name].append(clock() - start)
        longest = max(longest, sum(times[-1] for times in seconds.values()))
    return seconds


def busy() -> float:
    """How many cores' worth of work other processes do right now."""
    before, start = _busy_ticks(), time.perf_counter()
    time.sleep(1.0)
    ticks = _busy_ticks() - before
    return ticks / os.sysconf("SC_CLK_TCK") / (time.perf_counter() - start)


def _busy_ticks() -> int:
    user, nice, system, _, _, *rest = map(int, Path("/proc/stat").read_text().splitlines()[0].split()[1:])
    return user + nice + system + sum(rest[:3])  # interrupts, and time stolen by other machines


def ratio(what: str, slower: list[float], faster: list[float], least: float | None) -> Line:
    """How many times faster: the median, and the range, of the ratios of neighbouring runs."""
    ratios = [a / b for a, b in zip(slower, faster, strict=True)]
    median = statistics.median(ratios)
    spread = median, min(ratios), max(ratios)
    return Line(what, *spread, "-") if least is None else Line(what, *spread, f">= {least}", median >= least)


def peak_memory(pid: int) -> float:
    """The most bytes a process has had resident."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def mapped_memory(pid: int, file: Path) -> float:
    """The bytes of a memory-mapped file that a process has resident."""
    resident, inside = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if not line.split(" ")[0].endswith(":"):  # the head of a mapping: addresses, rights, ..., path
            inside = line.endswith(os.fspath(file))
        elif inside and line.startswith("Rss:"):
            resident += int(line.split()[1]) * 1024
    return resident
