"""Published tables: the paper's values, kept as data, and the experiments that should give them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator

from acclimate.errors import ConfigError, nearest
from acclimate.experiment.baselines import with_baselines
from acclimate.experiment.experiment import Experiment
from acclimate.experiment.reader import read
from acclimate.experiment.schema import check

FOLDER = Path(__file__).parent / "published"
MEAN = "mean"  # beside the shifts of a value by shift
STRICT = {"extra": "forbid"}  # a misspelt key is an error

Names = Annotated[list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]
Printed = float | tuple[float, float] | dict[str, float]  # a mean; with its s.d.; or by shift


@dataclass(frozen=True)
class Piece:
    """A part of a table that is one run: a shipped experiment and overrides."""

    __pydantic_config__ = STRICT

    experiment: str
    set: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Claim:
    """What the paper leads one to expect: systems above others, the best of all, or two that are alike."""

    __pydantic_config__ = STRICT

    piece: Names = field(default_factory=list)  # none: all of them
    higher: Names = field(default_factory=list)
    lower: Names = field(default_factory=list)
    best: str | None = None
    near: tuple[str, str] | None = None

    def __post_init__(self) -> None:
        kinds = [bool(self.higher) and bool(self.lower), self.best is not None, self.near is not None]
        if sum(kinds) != 1 or bool(self.higher) != bool(self.lower):
            raise ValueError("either higher and lower, or best, or near")

    @property
    def systems(self) -> list[str]:
        """Everybody it names."""
        return [*self.higher, *self.lower, *([self.best] if self.best else []), *(self.near or ())]


@dataclass(frozen=True)
class Cross:
    """Adapters x aggregators: every system `aggregator+adapter` is a cell, and a row of the table of all systems."""

    __pydantic_config__ = STRICT

    adapters: dict[str, str]  # each with its title
    aggregators: dict[str, str]

    def cells(self) -> dict[str, str]:
        """The systems, each with its title."""
        return {
            f"{aggregator}+{adapter}": f"{row}, {column}"
            for adapter, row in self.adapters.items()
            for aggregator, column in self.aggregators.items()
        }


@dataclass(frozen=True)
class Published:
    """One table of a paper, or one of our own with the same shape and no values."""

    name: str
    title: str
    source: str
    pieces: dict[str, Piece]
    rows: dict[str, str]  # our system → the table's row; those of `cross` are added
    values: dict[str, dict[str, Printed]] = field(default_factory=dict)  # row → piece → what the paper prints
    cross: Cross | None = None
    by_shift: bool = False  # methods x shifts, and values likewise
    pictures: bool = False  # whether the page shows what `acclimate figures` draws
    sweeps: dict[str, dict[str, str]] = field(default_factory=dict)  # what is varied → its value → piece: a picture
    claims: list[Claim] = field(default_factory=list)
    discussion: list[str] = field(default_factory=list)  # by hand, so without a measured number
    deviations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.cross:
            object.__setattr__(self, "rows", {**self.rows, **self.cross.cells()})

    def printed(self, system: str, piece: str) -> Printed | None:
        """What the paper has for one of our systems, if anything."""
        return self.values.get(self.rows[system], {}).get(piece)

    def mean(self, system: str, piece: str) -> float | None:
        """The mean of that, in %."""
        value = self.printed(system, piece)
        if isinstance(value, tuple):
            return value[0]
        return value.get(MEAN) if isinstance(value, dict) else value

    def experiments(self) -> dict[str, Experiment]:
        """What to run for each piece."""
        return {name: read(piece.experiment, piece.set) for name, piece in self.pieces.items()}


def names() -> list[str]:
    """All tables that can be reproduced."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def published(name: str) -> Published:
    """A table by name."""
    if name not in names():
        raise ConfigError([f"unknown table '{name}'; {nearest(name, names())}"], "reproduce")
    raw = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    common = raw.pop("experiment", None)  # of pieces that are overrides only
    raw["pieces"] = {key: _piece(piece, common) for key, piece in raw.get("pieces", {}).items()}
    where = f"the published table '{name}'"
    lacking = [
        f"pieces.{key}: no experiment, here or at the top" for key, p in raw["pieces"].items() if "experiment" not in p
    ]
    values, _, problems = check(Published, {**raw, "name": name}, "")
    if lacking or problems:
        raise ConfigError(lacking or problems, where)
    paper = Published(**values)
    if unknown := list(_unknown(paper, {key: _systems(e) for key, e in paper.experiments().items()})):
        raise ConfigError(unknown, where)
    return paper


def _piece(given: Any, common: str | None) -> Any:
    shared = {} if common is None else {"experiment": common}
    return {**shared, **given} if isinstance(given, dict) else {**shared, "set": given}


def _systems(experiment: Experiment) -> set[str]:
    """Whatever gets a line in the table of a run."""
    everything = with_baselines(experiment.systems)[0]
    return {s.name for s in everything} | {f"{s.name} (best validation)" for s in everything if s.select}


def _unknown(paper: Published, systems: Mapping[str, set[str]]) -> Iterator[str]:
    """Names that stand for nothing; `systems` are those of each piece."""
    anywhere = set().union(*systems.values())
    for system in paper.rows:
        if system not in anywhere:
            yield f"rows: no piece has a system '{system}'; {nearest(system, anywhere)}"
    for row, by_piece in paper.values.items():
        if row not in paper.rows.values():
            yield f"values: no system gives the row '{row}'; {nearest(row, paper.rows.values())}"
        yield from (f"values.{row}: {problem}" for problem in _not_pieces(paper, by_piece))
        wrong = [piece for piece, value in by_piece.items() if isinstance(value, dict) != paper.by_shift]
        yield from (
            f"values.{row}.{piece}: a mapping by shift goes with by_shift: true, and only so" for piece in wrong
        )
    for varied, by_value in paper.sweeps.items():
        yield from (f"sweeps.{varied}: {problem}" for problem in _not_pieces(paper, by_value.values()))
    for number, claim in enumerate(paper.claims):
        where = f"claims.{number}"
        yield from (f"{where}.piece: {problem}" for problem in _not_pieces(paper, claim.piece))
        for system in claim.systems:
            if system not in paper.rows:
                yield f"{where}: '{system}' is in no row; {nearest(system, paper.rows)}"
            lacking = [p for p in claim.piece or paper.pieces if p in systems and system not in systems[p]]
            if lacking:
                yield f"{where}: '{system}' is not tested in: {', '.join(lacking)}; name the pieces that have it"


def _not_pieces(paper: Published, given: Any) -> Iterator[str]:
    return (f"unknown piece '{piece}'; {nearest(piece, paper.pieces)}" for piece in given if piece not in paper.pieces)
