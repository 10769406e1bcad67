"""A run and typed questions to what it measured. Reports ask here; all SQL that reads results is in this file."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from acclimate.store.records import (
    ROUND,
    SELECTED,
    TEST,
    UNADAPTED,
    Chosen,
    Costs,
    Counts,
    Drawn,
    Entry,
    Learnt,
    Moment,
    People,
    Phase,
    Reached,
    Shifts,
)
from acclimate.store.scores import Scored, scored

ALL = -1  # the seed of what is noted for all seeds
WORKED = "seconds worked"  # a note of the run as a whole
_SUMS = "sum(CASE metric WHEN 'correct' THEN value ELSE 0 END), sum(CASE metric WHEN 'count' THEN value ELSE 0 END)"
_TESTS = f"phase IN ('{TEST}', '{SELECTED}')"
_COUNTED = "slot >= 0 AND metric IN ('correct', 'count')"
_TRAFFIC = "('bytes_down', 'bytes_up', 'left_out', 'lost')"


@dataclass(frozen=True)
class Run:
    """One run of a store, for as long as the store is open."""

    id: int
    name: str
    experiment: dict[str, Any]  # as `Experiment.plain` wrote it
    versions: dict[str, str]
    started: str
    finished: str | None
    _db: sqlite3.Connection = field(repr=False, compare=False)

    @property
    def seeds(self) -> list[int]:
        seeds: list[int] = self.experiment["seeds"]
        return seeds

    @property
    def streams(self) -> list[str]:
        streams: list[str] = self.noted("streams").get(("", ALL), [])
        return streams

    @property
    def of_own_data(self) -> bool:
        """Whether its images are files of the user's, which may have changed since."""
        return bool(self.experiment["scenario"]["name"] == "own")

    @property
    def worked(self) -> float | None:
        """Seconds of all sittings, without the pauses between them; None if they were not counted."""
        return self.noted(WORKED).get(("", ALL))

    @cached_property
    def entries(self) -> list[Entry]:
        """Everything that was tested, in the order of the experiment; what was added to compare with stands first."""
        found = {Entry.of(s, p) for s, p in self._ask(f"SELECT DISTINCT system, phase FROM row WHERE run = ? "
                                                                f"AND {_TESTS} AND slot >= 0")}  # fmt: skip
        order = [Entry(s["name"], selected) for s in self.experiment["systems"] for selected in (False, True)]
        return [*sorted(found - set(order)), *(one for one in order if one in found)]

    def baseline(self, entry: Entry) -> Entry:
        """The same model without adaptation, itself if it does not adapt."""
        if not entry.selected:
            return Entry(self.noted("baseline").get((entry.system, ALL), entry.system))
        return entry if entry.system in self._unadapted else entry._replace(adapted=False)

    @cached_property
    def _unadapted(self) -> set[str]:
        """The systems of the experiment that are tested as they were trained."""
        systems = self.experiment["systems"]
        return {s["name"] for s in systems if s["adapter"]["name"] == "none" and not s["aggregator"]}

    def table(self) -> list[dict[str, str | int | float | bool]]:
        """One record for every system, stream and seed; `pandas.DataFrame(run.table())` is the table."""
        return [one._asdict() for one in self.scores()]

    def scores(self) -> list[Scored]:
        """The same, typed."""
        return scored(self)

    # What was counted

    @cached_property
    def counts(self) -> dict[tuple[Entry, int, str], dict[int, Counts]]:
        """Everybody's whole stream: what was tested, seed, stream → client."""
        found: dict[tuple[Entry, int, str], dict[int, Counts]] = defaultdict(dict)
        for system, phase, seed, stream, client, correct, count in self._ask(
            f"SELECT system, phase, seed, stream, client, {_SUMS} FROM row WHERE run = ? AND {_COUNTED} "
            f"AND ({_TESTS} OR phase = '{UNADAPTED}') GROUP BY system, phase, seed, stream, client"
        ):
            found[Entry.of(system, phase), seed, stream][client] = Counts(correct, count)
        return dict(found)

    @cached_property
    def classes(self) -> dict[tuple[Entry, int, str], dict[int, Counts]]:
        """All clients together: what was tested, seed, stream → class."""
        found: dict[tuple[Entry, int, str], dict[int, Counts]] = defaultdict(dict)
        for system, phase, seed, stream, metric, value in self._ask(
            f"SELECT system, phase, seed, stream, metric, sum(value) FROM row WHERE run = ? AND {_TESTS} AND slot = -1 "
            "GROUP BY system, phase, seed, stream, metric"
        ):
            kind, _, label = metric.partition("/")
            of = found[Entry.of(system, phase), seed, stream]
            of[int(label)] = of.get(int(label), Counts(0.0, 0.0))._replace(
                **{"correct" if kind == "correct" else "seen": value}
            )
        return dict(found)

    def client_accuracies(self, entry: Entry, stream: str) -> dict[int, dict[int, float]]:
        """Seed → client → its accuracy over a whole stream, where it has labels."""
        found = {
            seed: {client: of.correct / of.seen for client, of in clients.items() if of.seen}
            for (one, seed, name), clients in self.counts.items()
            if (one, name) == (entry, stream)
        }
        return {seed: clients for seed, clients in found.items() if clients}

    def shift_counts(self, entry: Entry, stream: str) -> Iterator[tuple[str, int, Counts]]:
        """Shift, seed and everybody's slots under it, the shift that is met first first."""
        for shift, seed, correct, count in self._ask(
            f"SELECT shift, seed, {_SUMS} FROM row WHERE run = ? AND system = ? AND phase = ? AND stream = ? "
            "AND slot >= 0 AND metric IN ('correct', 'count') GROUP BY shift, seed ORDER BY min(slot), shift",
            entry.system,
            entry.phase,
            stream,
        ):
            yield shift, seed, Counts(correct, count)

    def moments(self, stream: str) -> Iterator[Moment]:
        """Every client in every slot, where it has labels."""
        for system, phase, seed, client, slot, correct, count in self._ask(
            f"SELECT system, phase, seed, client, slot, {_SUMS} FROM row WHERE run = ? AND stream = ? AND {_TESTS} "
            f"AND {_COUNTED} GROUP BY system, phase, seed, client, slot",
            stream,
        ):
            if count:
                yield Moment(Entry.of(system, phase), seed, client, slot, correct / count)

    @cached_property
    def costs(self) -> dict[Entry, Costs]:
        """What was tested → what it costs at test time."""
        sums: dict[Entry, dict[str, tuple[float, int]]] = defaultdict(dict)
        for system, phase, metric, total, slots in self._ask(
            f"SELECT system, phase, metric, sum(value), count(*) FROM row WHERE run = ? AND {_TESTS} AND slot >= 0 "
            "AND metric <> 'correct' GROUP BY system, phase, metric"
        ):
            sums[Entry.of(system, phase)][metric] = (total, slots)
        named = ("seconds", "bytes_up", "bytes_down", "missed", "left_out")
        return {
            entry: Costs(of["count"][1], *(of.get(name, (0.0, 0))[0] for name in named))._replace(
                stepped_in=of["stepped_in"][0] if "stepped_in" in of else None
            )
            for entry, of in sums.items()
        }

    def exchanges(self, entry: Entry) -> int:
        """How often its clients could have exchanged something."""
        own: dict[str, Any] = next((s for s in self.experiment["systems"] if s["name"] == entry.system), {})
        ((found,),) = self._ask(
            "SELECT count(*) FROM row WHERE run = ? AND system = ? AND phase = ? AND slot >= 0 AND metric = 'count' "
            "AND (slot + 1) % ? = 0",
            entry.system,
            entry.phase,
            own.get("test", self.experiment["test"])["sync_every"],
        )
        return int(found)

    # Who met what

    def groups(self) -> dict[int, dict[int, str]]:
        """Seed → client → its domain, angle or whatever the scenario groups clients by."""
        found = self.noted("groups")
        return {seed: {int(client): name for client, name in of.items()} for (_, seed), of in sorted(found.items())}

    def people(self) -> dict[int, People]:
        """Seed → everybody; empty where the run is older than this note."""
        return {seed: People.of(plain) for (_, seed), plain in sorted(self.noted("people").items())}

    def shifts(self, seed: int, stream: str) -> Shifts:
        """Who met what when, from what was scored."""
        found: Shifts = defaultdict(dict)
        for client, slot, shift in self._ask(
            f"SELECT DISTINCT client, slot, shift FROM row WHERE run = ? AND seed = ? AND stream = ? AND {_TESTS} "
            "AND slot >= 0 AND metric = 'count' ORDER BY client, slot",
            seed,
            stream,
        ):
            found[client][slot] = shift
        return dict(found)

    # What methods handed over

    def figures(self, stream: str, *, seed: int | None = None, server: bool = False) -> Iterator[Drawn]:
        """What the clients' adapters, or the server's aggregators, want drawn: client after client, in slots' order."""
        from acclimate import trees  # needs torch, which a list of runs does not

        chosen = "" if seed is None else "AND seed = ? "
        for system, phase, of, client, slot, content in self._ask(
            "SELECT system, phase, seed, client, slot, content FROM figure WHERE run = ? AND stream = ? "
            f"AND {_TESTS} AND client {'<' if server else '>='} 0 {chosen}ORDER BY system, phase, seed, client, slot",
            stream,
            *([] if seed is None else [seed]),
        ):
            yield Drawn(Entry.of(system, phase), of, client, slot, trees.load(content))

    def senders(self, entry: Entry, seed: int, stream: str) -> dict[int, list[int]]:
        """Slot → the clients that sent something."""
        found: dict[int, list[int]] = defaultdict(list)
        for slot, client in self._ask(
            "SELECT slot, client FROM row WHERE run = ? AND system = ? AND phase = ? AND seed = ? AND stream = ? "
            "AND metric = 'bytes_up' ORDER BY client",
            entry.system,
            entry.phase,
            seed,
            stream,
        ):
            found[slot].append(client)
        return found

    def rates(self) -> dict[str, list[dict[str, float]]]:
        """System → ATP's rates by module, of each seed."""
        found: dict[str, list[dict[str, float]]] = defaultdict(list)
        for (system, _), rates in sorted(self.noted("knowledge rates").items()):
            found[system].append(rates)
        return dict(found)

    def blocks(self, system: str) -> dict[str, list[str]]:
        """The blocks of a system's model, with the names of their tensors."""
        noted = self.noted("blocks")
        blocks: dict[str, list[str]] = noted.get((system, ALL)) or noted.get(("", ALL), {})
        return blocks

    # How it was trained and chosen

    def phases(self) -> list[Phase]:
        return [
            Phase(*row)
            for row in self._ask(
                "SELECT phase, seed, count(DISTINCT round), avg(CASE metric WHEN 'bytes_down' THEN value END), "
                "avg(CASE metric WHEN 'bytes_up' THEN value END), sum(metric IN ('bytes_up', 'lost')), "
                "sum(metric IN ('left_out', 'lost')) FROM row WHERE run = ? AND system = '' "
                f"AND metric IN {_TRAFFIC} GROUP BY seed, phase"
            )
        ]

    def learning(self) -> list[Learnt]:
        """Whatever clients reported while they trained, round after round."""
        return [
            Learnt(*row)
            for row in self._ask(
                "SELECT phase, seed, metric, round, avg(value) FROM row WHERE run = ? AND system = '' "
                f"AND metric NOT IN {_TRAFFIC} GROUP BY phase, seed, metric, round"
            )
        ]

    def training_seconds(self) -> dict[tuple[str, int], float]:
        """Label of a phase, seed → seconds of training; without what was in the cache already."""
        return self.noted("training seconds")

    def rounds(self) -> dict[str, list[Chosen]]:
        """System → the kept rounds among which one was selected, of each seed."""
        found: dict[str, list[Chosen]] = defaultdict(list)
        for (system, seed), note in sorted(self.noted("selected").items()):
            found[system].append(Chosen(seed, note["validation"], str(note["round"])))
        return dict(found)

    def convergence(self) -> list[Reached]:
        """What every kept round gave on test data, where the test asks for it, round after round."""
        found = [
            Reached(system, seed, stream, int(phase.removeprefix(ROUND)), correct / count, loss / count)
            for system, seed, stream, phase, correct, count, loss in self._ask(
                f"SELECT system, seed, stream, phase, {_SUMS}, sum(CASE metric WHEN 'loss' THEN value ELSE 0 END) "
                f"FROM row WHERE run = ? AND phase LIKE '{ROUND}%' AND slot >= 0 GROUP BY system, seed, stream, phase"
            )
            if count
        ]
        return sorted(found, key=lambda one: (one.system, one.seed, one.stream, one.round))

    def last_phase(self, system: str, seed: int) -> str:
        """The label of the phase whose kept rounds were tested."""
        label: str = self.noted("last phase").get((system, seed), "")
        return label

    def checksums(self) -> dict[str, str]:
        """Data set → the digest of its content."""
        checksums: dict[str, str] = self.noted("checksums").get(("", ALL), {})
        return checksums

    def noted(self, name: str) -> dict[tuple[str, int], Any]:
        """Notes of one kind by system ('': all) and seed (-1: all)."""
        found = self._ask("SELECT system, seed, value FROM note WHERE run = ? AND name = ?", name)
        return {(system, seed): json.loads(value) for system, seed, value in found}

    def _ask(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self._db.execute(sql, (self.id, *values)).fetchall()
