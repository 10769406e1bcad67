"""What computes nothing imports no torch, so that it answers at once."""

import os
import subprocess
import sys

import pytest
import yaml

import battery

CODE = """
import sys
sys.argv = ["acclimate", *sys.argv[1:]]
from acclimate.cli import main
try: main()
except SystemExit as stop: assert not stop.code, stop.code
print("imported:", *sorted({"torch", "sklearn", "scipy", "numpy", "pydantic"} & set(sys.modules)), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with one finished run; everything was asked once before."""
    folder = tmp_path_factory.mktemp("startup")
    (folder / "mine.yaml").write_text(yaml.safe_dump(battery.tiny(name="mine", systems=["em"])))
    for words in (["run", "mine.yaml", "--workers", "1"], ["show", "tent"]):
        assert "torch" in imported(folder, words)
    return folder


def imported(folder, words):
    environment = {**os.environ, "ACCLIMATE_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", CODE, *words], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stderr.rpartition("imported:")[2].split()


@pytest.mark.parametrize(
    "command",
    [
        "run mine.yaml",
        "run mine.yaml --json",
        "show mine",
        "report mine --json",
        "show tent",
        "show quickstart",
        "list data",
        "list tables",
        "list runs",
        "data check",
    ],
)
def test_nothing_is_computed_without_torch(folder, command):
    assert not {"torch", "sklearn", "scipy"} & set(imported(folder, command.split()))


@pytest.mark.parametrize("command", ["--help", "--version", "list adapters", "list systems", "list experiments"])
def test_help_and_names_need_nothing_heavy(folder, command):
    assert imported(folder, command.split()) == []
