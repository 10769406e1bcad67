"""Shifts by name, and tables of who meets which when (clients x time)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from acclimate.data.corruptions import EXTRA, KINDS, Corruption
from acclimate.data.image_shifts import Blur, Both, Brightness, Clean, Contrast, Noise, OneOf, Rotation, Shift
from acclimate.errors import ConfigError, nearest

# Shifts with one number, which is read as a float.
PLAIN: dict[str, Callable[[float], Shift]] = {
    "noise": Noise,
    "blur": Blur,
    "contrast-factor": Contrast,
    "brightness-added": Brightness,
    "rotation": Rotation,
}


def parse_shift(text: str) -> Shift:
    """A shift from words: 'clean', 'fog 5', 'rotation 30', 'fog 5 + rotation 30'.

    >>> parse_shift("snow 3 + rotation 30").name
    'snow 3 + rotation 30'
    """
    first, plus, rest = text.partition("+")
    if plus:
        return Both(parse_shift(first), parse_shift(rest))
    words = text.split()
    if words == ["clean"]:
        return Clean()
    if len(words) != 2 or words[0] not in {*KINDS, *EXTRA, *PLAIN}:
        hint = nearest(words[0] if words else "", {*KINDS, *EXTRA, *PLAIN, "clean"})
        raise ConfigError([f"'{text}' is no shift; write a name and a number, such as 'fog 5'; {hint}"], "a shift")
    try:
        number = float(words[1])
    except ValueError:
        raise ConfigError([f"'{text}': expected a number after '{words[0]}'; found '{words[1]}'"], "a shift") from None
    return PLAIN[words[0]](number) if words[0] in PLAIN else Corruption(words[0], int(number))


def common(severity: int) -> tuple[Shift, ...]:
    """The 15 common corruptions in their canonical order."""
    return tuple(Corruption(kind, severity) for kind in KINDS)


def any_common(severity: int) -> Shift:
    """One of the 15 common corruptions for every image, at random."""
    return OneOf(common(severity), name=f"any of 15, severity {severity}")


def rotated(shifts: Sequence[Shift], lead: int, reverse: bool = False) -> list[Shift]:
    """The same shifts, starting elsewhere, or read backwards."""
    order = list(shifts[::-1] if reverse else shifts)
    lead %= len(order)
    return order[lead:] + order[:lead]
