"""The wheel, installed where nothing else of the project is, runs the demo and writes its report."""

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]
SMALL = ["seeds=[0]", "phases.0.rounds=2", "systems=[none,tent,fedavg+bn-adapt]"]


def call(*command, **more):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """An environment with the wheel alone; what it stands on is borrowed from this one: torch is not fetched again."""
    folder = tmp_path_factory.mktemp("wheel")
    call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    (wheel,) = folder.glob("acclimate-*.whl")
    venv.create(folder / "empty", with_pip=True)
    python = folder / "empty" / "bin" / "python"
    call(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel)
    (packages,) = (folder / "empty" / "lib").glob("python*/site-packages")
    borrowed = sysconfig.get_paths()["purelib"]
    (packages / "borrowed.pth").write_text(f"{borrowed}\n")  # after the wheel's own, so the wheel is what is imported
    return python


def test_wheel_runs_the_demo_and_reports(installed, tmp_path):
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "ACCLIMATE_RUNS")}
    environment["ACCLIMATE_CACHE"] = str(tmp_path / "cache")
    where = call(installed, "-c", "import acclimate; print(acclimate.__file__)", cwd=tmp_path, env=environment).stdout
    assert Path(where.strip()).is_relative_to(installed.parents[1])
    command = installed.parent / "acclimate"
    done = call(command, "run", "quickstart", *SMALL, "--workers", "1", cwd=tmp_path, env=environment)
    assert "fedavg+bn-adapt" in done.stdout
    (page,) = tmp_path.glob("runs/*/report.html")
    assert str(page.relative_to(tmp_path)) in done.stderr
    before = page.read_text(encoding="utf-8")
    page.unlink()
    call(command, "report", "quickstart", cwd=tmp_path, env=environment)
    assert page.read_text(encoding="utf-8") == before
    assert "window.vegaEmbed" in before
    table = call(command, "report", "quickstart", "--csv", cwd=tmp_path, env=environment).stdout
    assert table.splitlines()[0].startswith("run,system,selected,stream,seed,")
