"""The pages for users run as written: files are written, Python and commands executed, in order, in an empty folder."""

import re
import shlex
from pathlib import Path

import pytest

from acclimate.experiment.catalog import ADAPTERS
from classifiers import MODELS

DOCS = Path(__file__).resolve().parents[1] / "docs"
BLOCK = re.compile(r"```(python|yaml|sh)\n(.*?)```", re.DOTALL)


def blocks(page):
    return BLOCK.findall((DOCS / f"{page}.md").read_text(encoding="utf-8"))


def play(page, folder, call):
    """Run a page; the names that its Python blocks have in the end, and what its commands printed."""
    names, printed = {"__name__": "tutorial"}, []
    for language, text in blocks(page):
        if found := re.match(r"# file: (\S+)\n", text):
            (folder / found[1]).write_text(text)
        elif language == "python":
            exec(compile(text, f"{page}.md", "exec"), names)
        elif language == "sh":
            for line in text.splitlines():
                program, *words = shlex.split(line)
                assert program == "acclimate"
                code, out, err = call(*words)
                assert code == 0, f"{line}: {err}"
                printed.append(out)
        else:
            raise AssertionError(f"a {language} block that nobody runs: {text}")
    return names, printed


def test_engineers_page_goes_from_a_model_file_to_two_devices(tmp_path, call, monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.syspath_prepend(str(tmp_path))
    names, printed = play("engineer", tmp_path, call)
    assert [logits.shape for logits in names["logits"]] == [(50, 10), (50, 10)]
    assert names["fleet"].server.members == ("north",)
    assert (tmp_path / "compared" / "model.onnx").exists()
    assert (tmp_path / "predictions.csv").read_text().count("\n") == 31
    right = (names["model"](names["images"][names["stream"]]).argmax(1) == names["labels"][names["stream"]]).float()
    assert right.mean() > 0.5  # the model of the page has learnt something
    assert any("bn-adapt" in text for text in printed)


def test_engineers_page_counts_what_the_battery_counts():
    text = (DOCS / "engineer.md").read_text(encoding="utf-8")
    pairs, works = map(int, re.search(r"bfloat16: (\d+) pairs, of which (\d+) work", text).groups())
    assert pairs == len(MODELS) * len(ADAPTERS)
    refused = int(re.search(r"The other (\d+) say", text)[1])
    parts = re.search(r"finds none \((\d+)\).*?augment \((\d+)\)", text, re.DOTALL).groups()
    assert pairs - works == refused == sum(map(int, parts))


def test_researchers_page_compares_a_method_of_ones_own(tmp_path, call):
    names, printed = play("researcher", tmp_path, call)
    assert len(names["gains"]) == 3
    assert {record["system"] for record in names["records"]} == {"none", "bn-adapt", "smooth"}
    assert type(names["adapted"].adapter).__name__ == "Smooth"
    assert all("smooth" in text for text in printed)


def test_newcomers_page_shows_a_table(tmp_path, call, capsys):
    names, printed = play("newcomer", tmp_path, call)
    assert {record["system"] for record in names["run"].table()} == {"none", "tent", "bn-adapt", "em"}
    assert "harmed" in printed[3]
