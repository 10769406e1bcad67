"""The examples of README, docs and docstrings run as written."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
import torch
import yaml

import acclimate
from acclimate.contracts import Adapter
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


def test_readme_names_the_make_targets_that_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


def test_adding_a_method_example_keeps_the_contract():
    names = {}
    exec(compile(blocks("docs/adding-a-method.md", "python")[0], "adding-a-method.md", "exec"), names)
    torch.manual_seed(0)
    adapter = names["Smooth"](torch.nn.Linear(3, 2))
    assert isinstance(adapter, Adapter)
    x = torch.rand(4, 3)
    adapter(x)
    state = adapter.state()
    logits = adapter(x)
    adapter.load_state(state)
    assert torch.equal(adapter(x), logits)


@pytest.mark.parametrize("name", ["acclimate", *MODULES])
def test_docstring_examples(name):
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
