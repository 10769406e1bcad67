"""What those who carry the work on rely on: versions, hooks, the workflow and the issue forms say the same."""

import re
from pathlib import Path

import pytest
import yaml

from acclimate import __version__

ROOT = Path(__file__).resolve().parents[1]


def read(name):
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_version_is_the_same_everywhere():
    assert yaml.safe_load(read("CITATION.cff"))["version"] == __version__
    released = re.findall(r"^## (\d.*)$", read("CHANGELOG.md"), re.MULTILINE)
    assert released[0] == __version__


def test_the_citation_has_what_the_format_requires():
    citation = yaml.safe_load(read("CITATION.cff"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["license"] == "Apache-2.0"


def test_hooks_are_the_checks_of_make_check():
    check = re.search(r"^check: setup\n((?:\t.*\n)+)", read("Makefile"), re.MULTILINE)[1]
    commands = [line.strip().replace("$(BIN)", ".venv/bin") for line in check.splitlines()]
    (local,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    assert local["repo"] == "local"
    assert [hook["entry"] for hook in local["hooks"]] == commands


def test_the_workflow_runs_what_a_contributor_runs():
    (job,) = yaml.safe_load(read(".github/workflows/test.yml"))["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


@pytest.mark.parametrize("form", ["bug", "result"])
def test_issues_about_numbers_ask_for_the_run_and_the_versions(form):
    fields = {field["id"]: field for field in yaml.safe_load(read(f".github/ISSUE_TEMPLATE/{form}.yml"))["body"]}
    for name in ("run", "versions"):
        assert fields[name]["validations"]["required"]
    assert "digest" in fields["run"]["attributes"]["description"]


@pytest.mark.parametrize(
    "form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_issue_forms_are_well_formed(form):
    content = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= set(content)
    assert all(field["type"] in ("input", "textarea") and field["attributes"]["label"] for field in content["body"])
