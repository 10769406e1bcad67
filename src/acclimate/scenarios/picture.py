"""A population as text: who holds what, and who meets what when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from acclimate.scenarios.population import Held, Population, Stream

T = TypeVar("T")

BARS = " ▁▂▃▄▅▆▇█"
WIDEST_HISTOGRAM = 30  # classes


def picture(people: Population, most: int = 12) -> str:
    """All of it: sizes, label histograms, and the table of streams over time; long lists are cut in the middle."""
    channels, height, width = people.shape
    lines = [
        f"{len(people.source)} source clients, {len({s.client for s in people.streams})} test clients, "
        f"{people.classes} classes, images {channels}x{height}x{width}",
        *people.remarks,
        "",
        "source clients       train  validation  labels",
    ]
    for id, (train, check) in _some(list(people.source.items()), most, lines):
        lines.append(f"  {id:<17} {len(train.rows):>7} {len(check.rows):>11}  {_histogram(people, [train, check])}")
    lines += ["", "test streams        images    segments  labels"]
    for stream in _some(list(people.streams), most, lines):
        parts = [held for _, held in stream.segments]
        size = sum(len(part.rows) for part in parts)
        name = f"{stream.client} {stream.name}"
        lines.append(f"  {name:<17} {size:>6} {len(parts):>11}  {_histogram(people, parts)}")
    return "\n".join([*lines, "", *_time(people.streams, most)])


def _time(streams: Sequence[Stream], most: int) -> list[str]:
    """One row per stream, one letter per segment, and what the letters mean."""
    shifts = list(dict.fromkeys(shift for stream in streams for shift, _ in stream.segments))
    letters = dict(zip(shifts, _letters(len(shifts)), strict=True))
    lines = ["who meets what when (one sign per segment)"]
    for stream in _some(list(streams), max(most, 24), lines):
        signs = "".join(letters[shift] for shift, _ in stream.segments)
        cut = signs if len(signs) <= 90 else f"{signs[:87]}..."
        lines.append(f"  {f'{stream.client} {stream.name}':<17} {cut}")
    lines += ["", *(f"  {letters[shift]}  {shift}" for shift in shifts[:60])]
    return lines


def _letters(number: int) -> list[str]:
    alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
    return [alphabet[i] if i < len(alphabet) else "?" for i in range(number)]


def _histogram(people: Population, parts: Sequence[Held]) -> str:
    labels = np.concatenate([people.pools[part.pool][1][part.rows] for part in parts])
    if (labels < 0).any():
        return "without labels"
    counts = np.bincount(labels, minlength=people.classes)
    if people.classes > WIDEST_HISTOGRAM:
        return f"{int((counts > 0).sum())} classes, largest {int(counts.max())}"
    scale = (len(BARS) - 1) / max(int(counts.max()), 1)
    return "".join(BARS[int(np.ceil(count * scale))] for count in counts)


def _some(items: list[T], most: int, lines: list[str]) -> list[T]:
    """The first few of a long list."""
    if len(items) > most:
        lines.append(f"  (the first {most} of {len(items)})")
    return items[:most]
