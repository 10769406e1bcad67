"""Published tables: the paper's values, kept as data, and the experiments that should give them.

Under `values` a row has, for each piece, what the paper prints: a number, or a number and its spread. Where a run has
several streams they are named, and `mean` is the paper's average over them; where clients belong to groups (domains,
angles) a stream may have a value for each, and `mean` is the one over groups:

    BN-Adapt: {hybrid: [50.40, 0.43]}                                 # a run with one stream
    FedAvg: {cnn: {ind: [65.60, 0.24], mix: 58.88, mean: 58.67}}      # by stream
    FedAvg: {mnist: {validation: 95.06, test: 94.69}}                 # with test: {validation: true}
    Tent: {digits: {corrupted: {mnist: [86.13, 0.56], usps: 67.51}}}  # by group in a stream
    FedTSA: {iid: {fog: 49.55, snow: 63.11, mean: 61.57}}             # with by_shift: true

What is not printed is left out: every stream and group of a run is on the page all the same. Claims are about every
stream of a run and all its clients, unless they name a `stream` (or `mean`) or a `group`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import yaml
from pydantic import BeforeValidator

from acclimate.errors import ConfigError, nearest
from acclimate.experiment.catalog import tables
from acclimate.store.records import Entry

if TYPE_CHECKING:  # what needs torch waits until an experiment is read: a list of tables and a report need none
    from acclimate.experiment.experiment import Experiment

MEAN = "mean"  # over streams, groups or shifts, beside them
ONLY = ""  # the stream of a run that has no other, where nobody names it
STRICT = {"extra": "forbid"}  # a misspelt key is an error
PAPERS = {  # what a table's name begins with → the paper it is of
    "atp": "ATP (Bao et al., NeurIPS 2023)",
    "fedtta": "FedTTA (Ye et al., SDM 2024)",
    "tsa": "TSA (Zhang et al., KDD 2024)",
    "btfl": "BTFL (Zhou & Liu, KDD 2025)",
    "fedicon": "FedICON (Tan et al., FLData-Mining at KDD 2023)",
}

Names = Annotated[list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]
Value = float | tuple[float, float]  # a mean; with its spread
Values = Value | dict[str, Value]  # of one stream: for all clients, or by group (by_shift: by shift)
Printed = Value | dict[str, Values]  # of a run: of its only stream, or by stream
Met = Mapping[str, Collection[str]]  # stream → the groups, or the shifts, of those who meet it


@dataclass(frozen=True)
class Piece:
    """A part of a table that is one run: a shipped experiment and overrides."""

    __pydantic_config__ = STRICT

    experiment: str
    set: list[str] = field(default_factory=list)

    def read(self, overrides: Sequence[str] = ()) -> Experiment:
        """What to run; overrides of the user come last."""
        from acclimate.experiment.reader import read

        return read(self.experiment, [*self.set, *overrides])


@dataclass(frozen=True)
class Claim:
    """What the paper leads one to expect: systems above others, the best of all, or two that are alike."""

    __pydantic_config__ = STRICT

    piece: Names = field(default_factory=list)  # none: all of them
    stream: Names = field(default_factory=list)  # none: every stream of the run; mean: a client's mean over its streams
    group: Names = field(default_factory=list)  # none: all clients together
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
    pictures: bool = False  # whether the page shows what `acclimate report` draws
    sweeps: dict[str, dict[str, str]] = field(default_factory=dict)  # what is varied → its value → piece: a picture
    losses: dict[str, list[str]] = field(default_factory=dict)  # piece → pieces in which something was done to it
    tradeoff: tuple[str, str] | None = None  # two pieces, the accuracies of each an axis: a picture
    claims: list[Claim] = field(default_factory=list)
    discussion: list[str] = field(default_factory=list)  # by hand, so without a measured number
    deviations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.cross:
            object.__setattr__(self, "rows", {**self.rows, **self.cross.cells()})

    def printed(self, row: str, piece: str) -> dict[str, Values]:
        """What the paper has for a row and a piece, by stream."""
        value = self.values.get(row, {}).get(piece)
        if value is None:
            return {}
        if isinstance(value, dict) and (not self.by_shift or any(isinstance(each, dict) for each in value.values())):
            return value
        return {ONLY: value}  # type: ignore[dict-item]  # without a mapping inside it is the values of one stream

    def unmet(self, piece: str, met: Met, shifts: Met | None = None) -> Iterator[str]:
        """Values and claims about streams and groups (by_shift: shifts) that a run of the piece does not have."""
        for row in self.values:
            for stream, value in self.printed(row, piece).items():
                wrong = _not_met(
                    stream, value, met, shifts if self.by_shift else met, "shift" if self.by_shift else "group"
                )
                yield from (f"values.{row}.{piece}: {problem}" for problem in wrong)
        for number, claim in enumerate(self.claims):
            if piece in (claim.piece or self.pieces):
                yield from (f"claims.{number}, piece '{piece}': {problem}" for problem in _nobody(claim, met))

    def experiments(self, overrides: Sequence[str] = ()) -> dict[str, Experiment]:
        """What to run for each piece."""
        return {name: piece.read(overrides) for name, piece in self.pieces.items()}


def columns(streams: Iterable[str]) -> list[str]:
    """Streams and, if several are tests, their mean; validation parts are no test and do not count in it.

    >>> columns(["label", "feature", "validation"]), columns(["test", "validation"])
    (['label', 'feature', 'validation', 'mean'], ['test', 'validation'])
    """
    found = list(streams)
    return [*found, MEAN] if len(tests(found)) > 1 else found


def tests(streams: Iterable[str]) -> list[str]:
    """The streams that are no validation."""
    from acclimate.scenarios.population import VALIDATION

    return [stream for stream in streams if stream != VALIDATION]


def met(experiment: Experiment) -> dict[str, set[str]]:
    """The streams that a run of it will have, with the groups in them, from the plans of its seeds."""
    from acclimate.scenarios.population import VALIDATION

    scenario = (experiment.test_scenario or experiment.scenario).made
    found: dict[str, set[str]] = {}
    for seed in experiment.seeds:
        plan = scenario.plan(scenario.seed_of(seed))
        members = [(stream.name, stream.client) for stream in plan.streams]
        if any(system.test.validation for system in experiment.systems):
            members += [(VALIDATION, client) for client, (_, held) in plan.source.items() if len(held.rows)]
        for stream, client in members:
            found.setdefault(stream, set()).update([plan.groups[client]] if client in plan.groups else [])
        if not plan.groups:
            break  # other seeds have the same streams
    return found


def names() -> list[str]:
    """All tables that can be reproduced."""
    return list(tables())


@dataclass(frozen=True)
class Outline:
    """What a list of tables says about one, without the experiments behind it."""

    name: str
    title: str
    pieces: list[str]

    @property
    def paper(self) -> str:
        return PAPERS.get(self.name.partition("-")[0], "Other tables")


def outlines() -> list[Outline]:
    """All tables, paper by paper."""
    found = []
    for name, path in tables().items():
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
        found.append(Outline(name, raw["title"], list(raw["pieces"])))
    order = [*PAPERS.values(), "Other tables"]
    return sorted(found, key=lambda outline: order.index(outline.paper))


def published(name: str) -> Published:
    """A table by name."""
    from acclimate.experiment.schema import check

    if name not in names():
        raise ConfigError([f"unknown table '{name}'; {nearest(name, names())}"], "reproduce")
    raw = yaml.safe_load(tables()[name].read_text(encoding="utf-8"))
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
    from acclimate.experiment.baselines import with_baselines

    everything = with_baselines(experiment.systems)[0]
    return {s.name for s in everything} | {Entry(s.name, selected=True).title for s in everything if s.select}


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
        plain = [piece for piece, value in by_piece.items() if paper.by_shift and not isinstance(value, dict)]
        yield from (f"values.{row}.{piece}: expected values by shift (by_shift: true); found one" for piece in plain)
    for varied, by_value in paper.sweeps.items():
        yield from (f"sweeps.{varied}: {problem}" for problem in _not_pieces(paper, by_value.values()))
    compared = [piece for undisturbed, disturbed in paper.losses.items() for piece in (undisturbed, *disturbed)]
    yield from (f"losses: {problem}" for problem in _not_pieces(paper, compared))
    yield from (f"tradeoff: {problem}" for problem in _not_pieces(paper, paper.tradeoff or ()))
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


def _not_met(stream: str, value: Values, met: Met, names: Met | None, kind: str) -> Iterator[str]:
    """What is wrong with values of a stream; `names` of its groups or shifts, where they are known."""
    possible = columns(met)
    if stream == ONLY and len(met) > 1:
        yield f"say of which stream, as in {{{possible[0]}: 50.0}}; {nearest(stream, possible)}"
    elif stream not in (ONLY, *possible):
        yield f"the run has no stream '{stream}'; {nearest(stream, possible)}"
    elif isinstance(value, dict) and stream == MEAN:
        yield f"the mean over streams is one value; found {value!r}"
    elif isinstance(value, dict) and names is not None:
        there = {MEAN, *names[stream or possible[0]]}
        yield from (f"the run has no {kind} '{name}'; {nearest(name, there)}" for name in value if name not in there)


def _nobody(claim: Claim, met: Met) -> Iterator[str]:
    """Streams of a claim that the run has not, and groups that nobody in them is of."""
    possible = columns(met)
    unknown = [stream for stream in claim.stream if stream not in possible]
    yield from (f"the run has no stream '{stream}'; {nearest(stream, possible)}" for stream in unknown)
    chosen = [stream for stream in claim.stream if stream in met] or met
    groups = {group for stream in chosen for group in met[stream]}
    yield from (f"nobody is of group '{g}'; {nearest(g, groups)}" for g in claim.group if g not in groups)
