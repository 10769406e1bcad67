"""The examples of README, docs and docstrings run as written."""

import doctest
import importlib
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from PIL import Image

import acclimate
import battery
from acclimate.experiment.reader import parse
from acclimate.report.overview import overview

ROOT = Path(__file__).resolve().parents[1]
MODULES = [
    module.name
    for module in pkgutil.walk_packages(acclimate.__path__, "acclimate.")
    if not module.name.endswith("__main__")
]


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def name_of(page):
    return str(page.relative_to(ROOT))


def blocks(name, language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL)


def test_readme_first_example_runs():
    names = {}
    exec(compile(blocks("README.md", "python")[0], "README.md", "exec"), names)
    assert names["logits"].shape == (20, 10)
    assert names["state"]["optimizer"]["state"][0]["step"].item() == 5


def test_readme_experiment_is_valid():
    whole, scenario = (yaml.safe_load(text) for text in blocks("README.md", "yaml"))
    assert [s.name for s in parse(whole).systems][-1] == "tuned"
    assert parse({**whole, **scenario}).scenario.name == "timetable"


def test_readme_commands_work_for_a_newcomer(call, tmp_path, monkeypatch):
    """Without any data; in the order of the page, with less to compute."""
    monkeypatch.setenv("ACCLIMATE_DATA", str(tmp_path / "nothing"))
    experiment = yaml.safe_load(blocks("README.md", "yaml")[0])
    small = {"scenario": battery.tiny()["scenario"], "seeds": [0]}
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**experiment, **small}))
    (tmp_path / "images").mkdir()
    Image.new("L", (32, 32), 128).save(tmp_path / "images" / "mine.png")
    commands = re.findall(r"^acclimate .*$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert len(commands) >= 8
    for command in commands:
        words = shlex.split(command, comments=True)[1:]
        if words[0] == "run":
            words = [re.sub(r"rounds=\d+", "rounds=2", word) for word in words]
            words += ["--workers", "1", *([] if "phases.0.rounds=2" in words else ["phases.0.rounds=1"])]
        code, _, err = call(*words)
        assert code == 0, f"{command}: {err}"


def test_readme_names_the_make_targets_that_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


def test_adding_a_method_shows_the_example_files():
    shown = blocks("docs/adding-a-method.md", "python")
    for name in ("smooth.py", "test_smooth.py"):
        assert (ROOT / "docs" / "examples" / name).read_text(encoding="utf-8") in shown


def test_adding_a_method_works_word_for_word(tmp_path):
    """The five steps of the page on a copy of the repository; then what `make test` would say about the method."""
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    method, line, test = blocks("docs/adding-a-method.md", "python")
    (row,) = blocks("docs/adding-a-method.md", "markdown")
    (tmp_path / "src/acclimate/adapters/smooth.py").write_text(method, encoding="utf-8")
    catalog = tmp_path / "src/acclimate/experiment/catalog.py"
    catalog.write_text(catalog.read_text(encoding="utf-8").replace("ADAPTERS = {\n", f"ADAPTERS = {{\n{line}", 1))
    methods = (ROOT / "docs/methods.md").read_text(encoding="utf-8")
    added = re.sub(r"(## Adapters\n.*?\|---.*?\n)", lambda head: head[0] + row, methods, count=1, flags=re.DOTALL)
    (tmp_path / "docs/methods.md").write_text(added, encoding="utf-8")
    (tmp_path / "tests/adapters/test_smooth.py").write_text(test, encoding="utf-8")

    def python(*words):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    python("tests/recorded/defaults.py")
    checked = python("-m", "pytest", "-k", "smooth and not kill", "tests/adapters", "tests/contracts", "-rA")
    for name in ("test_smooth_subtracts_the_running_mean", "cites_its_paper[adapters-smooth]"):
        assert re.search(rf"PASSED \S*{re.escape(name)}", checked)
    shown = python("-m", "acclimate", "show", "smooth")
    assert "momentum  float" in shown


@pytest.mark.parametrize("name", ["acclimate", *MODULES])
def test_docstring_examples(name):
    if name in ("acclimate.flower.client", "acclimate.flower.grid", "acclimate.flower.server"):
        pytest.importorskip("flwr", reason="Flower is not installed (pip install -e '.[flower]')")
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_link_to_what_exists(page):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_link_to_headings_they_have(page):
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= anchors


@pytest.mark.parametrize("file", sorted((ROOT / "docs" / "results").glob("*.json")), ids=lambda file: file.stem)
def test_every_results_file_has_its_page(file):
    assert (ROOT / "docs" / "reproduction" / f"{file.stem}.md").is_file()


def test_the_overview_of_reproductions_is_as_the_results_say():
    written = (ROOT / "docs" / "reproduction" / "README.md").read_text(encoding="utf-8")
    assert written == overview(ROOT / "docs" / "results")
