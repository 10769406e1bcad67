"""Nothing is done twice that need be done once: counted in a run of five systems on one seed."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest

import battery
from acclimate import trees
from acclimate.contracts import AdapterRecipe
from acclimate.engine.executor import Processes
from acclimate.experiment import versions
from acclimate.experiment.reader import parse
from acclimate.experiment.run import run
from acclimate.scenarios.population import Stream

SYSTEMS = ["none", "tent", "em", "bbse", "fedavg+tent"]


class Told:
    """Counts calls of things, in this process or, through a file, in others."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, what: str) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{what}\n")

    def counts(self) -> Counter[str]:
        return Counter(self.path.read_text(encoding="utf-8").splitlines())


@pytest.fixture
def told(tmp_path, monkeypatch):
    """What is counted: parcels of knowledge opened, adapters made, streams cut, git asked."""
    found = Told(tmp_path / "told")
    opened, made, cut, asked = trees.Parcel.open, AdapterRecipe.__call__, Stream.slots, subprocess.run

    def open_(self):
        if getattr(self, "lasting", False):
            found.note(f"knowledge {self.key}")
        return opened(self)

    def make(self, net, **knowledge):
        found.note(f"adapter {self.target.__name__}")
        return made(self, net, **knowledge)

    def slots(self, size):
        found.note(f"stream {self.client} {self.name} {size}")
        return cut(self, size)

    def ask(command, *args, **more):
        found.note(f"{command[0]}")
        return asked(command, *args, **more)

    monkeypatch.setattr(trees.Parcel, "open", open_)
    monkeypatch.setattr(AdapterRecipe, "__call__", make)
    monkeypatch.setattr(Stream, "slots", slots)
    monkeypatch.setattr(subprocess, "run", ask)
    monkeypatch.setenv("ACCLIMATE_CACHE", str(tmp_path / "cache"))
    versions.versions.cache_clear()
    return found


def test_a_run_in_one_process_does_everything_once(told, tmp_path):
    run(parse(battery.tiny(systems=SYSTEMS)), tmp_path)
    counts = told.counts()
    knowledge = [n for what, n in counts.items() if what.startswith("knowledge")]
    assert knowledge == [1, 1]  # of fedavg and of bbse
    assert counts["adapter Tent"] == 3  # of the two systems that have one, and of the server that awaits uploads
    assert counts["adapter EM"] == counts["adapter BBSE"] == counts["adapter NoAdaptation"] == 1
    streams = [n for what, n in counts.items() if what.startswith("stream")]
    assert streams == [1] * 6  # three clients, two streams
    assert counts["git"] == 1


def test_lasting_knowledge_travels_to_each_worker_once(tmp_path, monkeypatch):
    """Two phases, two workers: four times in all, whatever the number of systems."""
    monkeypatch.setenv("ACCLIMATE_CACHE", str(tmp_path / "cache"))
    sealed = Counter()
    seal = trees.Shared.seal

    def counted(self):
        sealed[self.key] += self.lasting
        return seal(self)

    monkeypatch.setattr(trees.Shared, "seal", counted)
    with Processes(2) as executor:
        run(parse(battery.tiny(systems=SYSTEMS)), tmp_path, executor=executor)
    assert sorted(n for n in sealed.values() if n) == [2, 2]
