"""What clients are to do, told as places in the experiment: no message but the experiment itself can name code.

The server finds the objects of a phase or a test among those of its experiment and sends where they stand; a node looks
there in its own copy. What phases have exported goes by digest.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from acclimate.contracts import AdapterRecipe, Algorithm
from acclimate.data.folders import write_whole
from acclimate.engine.known import Exports, Finished
from acclimate.engine.messages import Test
from acclimate.engine.tester import Trial
from acclimate.engine.trainee import Training
from acclimate.engine.work import Work
from acclimate.experiment.baselines import with_baselines
from acclimate.experiment.experiment import Experiment, PhaseChoice, System
from acclimate.scenarios.nodes import Holder, Nodes
from acclimate.scenarios.population import Population, Scenario
from acclimate.trees import Nest, Shared

MARK, CLIENTS = "nodes.mark", "clients.json"  # files in the folder of a run


class Scene(NamedTuple):
    """A population of an experiment."""

    seed: int
    tested: bool  # the one that is tested, where it is not the one that is trained on


@dataclass(frozen=True)
class OnNodes(Experiment):
    """An experiment whose clients are on nodes.

    They keep their states, so that phases trained there are good for one run only: its folder has a mark that stands
    for them, and a run that was deleted begins anew.
    """

    mark: str = field(default="", compare=False)
    holders: tuple[Holder, ...] = field(default=(), compare=False)  # nodes with data of their own, by client
    made: dict[int, tuple[Population, Population]] = field(default_factory=dict, compare=False)  # by seed

    @staticmethod
    def of(experiment: Experiment, runs: Path | None = None) -> OnNodes:
        """The same experiment, on nodes; on the server, as a run of this folder."""
        there = OnNodes(**{one.name: getattr(experiment, one.name) for one in fields(Experiment)})
        if runs is None:
            return there
        file = runs / there.run_name / MARK
        if not file.exists():
            write_whole(file, lambda opened: opened.write(uuid.uuid4().hex.encode()))
        return replace(there, mark=file.read_text(encoding="utf-8"))

    def holding(self, said: Sequence[Holder], runs: Path) -> OnNodes:
        """The experiment with what nodes say of their data; who was there when the run began takes part to its end."""
        file = runs / self.run_name / CLIENTS
        if not file.exists():
            listed = json.dumps(sorted(said), indent=1)
            write_whole(file, lambda opened: opened.write(listed.encode()))
        return self._held(file)

    @staticmethod
    def restored(experiment: Experiment, folder: Path) -> OnNodes:
        """The experiment of a run on nodes whose folder this is."""
        there = replace(OnNodes.of(experiment), mark=(folder / MARK).read_text(encoding="utf-8"))
        return there._held(folder / CLIENTS) if there.own_data else there

    def _held(self, file: Path) -> OnNodes:
        holders = [Holder(*one) for one in json.loads(file.read_text(encoding="utf-8"))]
        return replace(self.bound(self.scenario.made.on_server(holders)), holders=tuple(holders))

    def bound(self, scenario: Scenario) -> OnNodes:
        """The same with data of a scenario."""
        return replace(self, scenario=replace(self.scenario, made=scenario), made={})

    @property
    def own_data(self) -> bool:
        """Whether nodes have images of their own."""
        return isinstance(self.scenario.made, Nodes)

    def populations(self, seed: int) -> tuple[Population, Population]:
        if seed not in self.made:
            trained, tested = super().populations(seed)
            mine = replace(trained, digest=f"{trained.digest} on nodes {self.mark}")
            theirs = mine if tested is trained else replace(tested, digest=f"{tested.digest} on nodes {self.mark}")
            self.made[seed] = mine, theirs
        return self.made[seed]

    def scene(self, people: Population) -> Scene:
        """Which of its populations this is."""
        pairs = self.made.items()
        return next(Scene(seed, people is not one[0]) for seed, one in pairs if people is one[0] or people is one[1])

    @property
    def run_name(self) -> str:
        return f"{super().run_name}-flower"


@dataclass(frozen=True)
class Places:
    """The objects of an experiment and where they stand, the same on the server and on every node."""

    experiment: OnNodes
    systems: tuple[System, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "systems", tuple(with_baselines(self.experiment.systems)[0]))

    def told(self, work: Work, trained: Population, commons: list[str]) -> Nest:
        """Work as a nest; `commons` are the digests of what all phases so far have exported to everybody."""
        assert isinstance(work, Training | Trial)
        model = next(s for s, system in enumerate(self.systems) if system.model.build(trained) == work.build)
        phases = [(self._of(one.algorithm), one.seed, one.position, list(one.personal)) for one in work.exports.phases]
        same = {"model": model, "seed": work.seed, "commons": commons, "phases": phases}
        if isinstance(work, Training):
            own = {"phase": self._of(work.algorithm), "position": work.position, "source": list(work.source)}
        else:
            members = [list(member) for member in work.members]
            own = {"adapter": self._of(work.recipe), "members": members, "test": vars(work.test), "signs": work.signs}
        return {**same, **own}

    def rebuilt(self, told: Nest, trained: Population, commons: tuple[Shared, ...]) -> Training | Trial:
        """The work again, on a node."""
        build, seed = self.systems[told["model"]].model.build(trained), told["seed"]
        finished = [
            Finished(self._at(place), s, position, tuple(names)) for place, s, position, names in told["phases"]
        ]
        exports = Exports(commons, tuple(finished))
        if "phase" in told:
            return Training(self._at(told["phase"]), build, seed, told["position"], tuple(told["source"]), exports)
        members, test = tuple((client, stream) for client, stream in told["members"]), Test(**told["test"])
        return Trial(self._at(told["adapter"]), members, build, test, seed, exports, told["signs"])

    def phase(self, told: Nest) -> PhaseChoice | None:
        """The phase, with its schedule; None: it is a test."""
        if "phase" not in told:
            return None
        system, _, position = told["phase"]
        choice: PhaseChoice = self.systems[system].phases[position]
        return choice

    def _all(self) -> Iterator[tuple[tuple[int, str, int], Any]]:
        for s, system in enumerate(self.systems):
            yield from (((s, "phase", p), phase.algorithm.made) for p, phase in enumerate(system.phases))
            yield (s, "adapter", 0), system.adapter.made
            yield from (((s, "tune", k), candidate.made) for k, candidate in enumerate(system.tune))

    def _of(self, made: Algorithm[Any, Any] | AdapterRecipe) -> tuple[int, str, int]:
        same = [place for place, one in self._all() if one is made]
        return same[0] if same else next(place for place, one in self._all() if one == made)

    def _at(self, place: tuple[int, str, int]) -> Any:
        found: Mapping[tuple[int, str, int], Any] = dict(self._all())
        return found[tuple(place)]  # type: ignore[index]
