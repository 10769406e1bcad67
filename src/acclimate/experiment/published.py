"""Published tables: the paper's values, kept as data, and the experiments that should give them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from acclimate.errors import ConfigError, nearest

FOLDER = Path(__file__).parent / "published"


@dataclass(frozen=True)
class Published:
    """One table of a paper."""

    name: str
    title: str
    source: str
    experiment: str  # shipped
    pieces: dict[str, list[str]]  # column → overrides of the experiment
    rows: dict[str, str]  # our system → the paper's row
    values: dict[str, dict[str, list[float]]]  # the paper's row → column → mean, s.d.
    deviations: list[str]


def names() -> list[str]:
    """All tables that can be reproduced."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def published(name: str) -> Published:
    """A table by name."""
    if name not in names():
        raise ConfigError([f"unknown table '{name}'; {nearest(name, names())}"], "reproduce")
    raw = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    return Published(name=name, **raw)
