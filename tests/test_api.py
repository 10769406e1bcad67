"""The Python way: what `import acclimate` gives, and how an experiment is run from there."""

import subprocess
import sys

import pytest

import acclimate as ac
import battery
from acclimate.contracts import Adapter
from acclimate.errors import ConfigError


def test_importing_acclimate_imports_nothing_that_takes_time():
    script = (
        "import sys; before = set(sys.modules); import acclimate\n"
        "new = {name for name in set(sys.modules) - before if name.partition('.')[0] not in sys.stdlib_module_names}\n"
        "print(sorted(new))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['acclimate', 'acclimate.version']"


def test_every_public_name_is_there_and_is_what_it_says():
    for name in ac.__all__:
        assert getattr(ac, name) is not None
    assert set(ac._MODULE) | {"__version__"} == set(ac.__all__) <= set(dir(ac))
    assert ac.Adapter is Adapter
    with pytest.raises(AttributeError, match="module 'acclimate' has no attribute 'wrp'"):
        ac.wrp  # noqa: B018


def test_read_takes_data_with_overrides_and_leaves_the_data_alone():
    raw = battery.tiny()
    experiment = ac.read(raw, ["seeds=[3]", "systems.tent.adapter.lr=0.5"])
    assert experiment.seeds == (3,)
    assert experiment.systems[0].adapter.options["lr"] == 0.5
    assert raw == battery.tiny()
    with pytest.raises(ConfigError, match="seds: unknown key; did you mean 'seeds'"):
        ac.read({**raw, "seds": [0]})
    assert ac.read("quickstart").name == "quickstart"


class Counting:
    def __init__(self):
        self.begun, self.said = [], []

    def begin(self, title, total):
        self.begun.append(title)

    def step(self, done, text): ...

    def end(self): ...

    def say(self, text):
        self.said.append(text)


def test_run_measures_once_and_its_table_is_records(tmp_path, capsys):
    listener = Counting()
    run = ac.run(ac.read(battery.tiny(seeds=[0, 1])), runs=tmp_path, workers=1, progress=listener)
    assert any("testing tent" in title for title in listener.begun)
    records = run.table()
    assert [(r["system"], r["stream"], r["seed"]) for r in records] == [
        (system, stream, seed) for system in ("none", "tent") for stream in ("label", "feature") for seed in (0, 1)
    ]
    assert all(0 <= r["accuracy"] <= 1 and r["ms_per_batch"] > 0 for r in records)
    assert all(isinstance(value, str | int | float) for r in records for value in r.values())
    again = Counting()
    assert ac.run(battery.tiny(seeds=[0, 1]), runs=tmp_path, progress=again).table() == records
    assert again.begun == []
    more = ac.run(battery.tiny(seeds=[0, 1, 2]), runs=tmp_path, workers=1)  # goes on from what is there
    assert "as measured by" in capsys.readouterr().err
    assert len(more.table()) == 12


def test_run_with_workers_gives_the_same_table(tmp_path):
    times = ("ms_per_batch",)
    one, two = (
        [{k: v for k, v in record.items() if k not in times} for record in run.table()]
        for run in (
            ac.run(battery.tiny(name=f"w{n}"), runs=tmp_path / str(n), workers=n, progress=False) for n in (1, 2)
        )
    )
    assert one == two


def test_a_bare_run_without_systems_of_that_name_says_so(tmp_path):
    run = ac.run(battery.tiny(), runs=tmp_path, workers=1, progress=False)
    assert run.folder.is_dir()
    assert ac.Run.open(run.name, tmp_path).experiment.systems[0].adapter == run.experiment.systems[0].adapter
