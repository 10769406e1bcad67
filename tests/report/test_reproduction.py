import json
import statistics
import sys

import pytest
import yaml

import battery
from acclimate.cli import main
from acclimate.experiment import published
from acclimate.experiment.catalog import shipped
from acclimate.experiment.config import read

EXPERIMENT = battery.tiny(systems=["none", {"name": "em", "tune": {"iterations": [1, 2]}}], seeds=[0, 1])


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(EXPERIMENT))
    paper = {
        "title": "A tiny table",
        "source": "nobody",
        "experiment": str(tmp_path / "tiny.yaml"),
        "pieces": {"mild": ["scenario.noise=0.1"], "harsh": ["scenario.noise=0.8"]},
        "rows": {"none": "No adaptation", "em": "EM"},
        "values": {row: {"mild": [50.0, 1.0], "harsh": [40.0, 2.0]} for row in ("No adaptation", "EM")},
        "deviations": ["It is tiny."],
    }
    (tmp_path / "published").mkdir()
    (tmp_path / "published" / "tiny-table.yaml").write_text(yaml.safe_dump(paper))
    monkeypatch.setattr(published, "FOLDER", tmp_path / "published")

    def invoke(*words):
        monkeypatch.setattr(sys, "argv", ["acclimate", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        return stop.value.code, capsys.readouterr()

    return invoke


def test_reproduce_writes_a_section_piece_by_piece(call, tmp_path):
    assert call("reproduce", "tiny-table", "--only", "mild", "--workers", "1")[0] == 0
    page = (tmp_path / "docs" / "reproduction.md").read_text()
    assert "### mild" in page
    assert "### harsh" not in page
    assert "Not run yet: harsh." in page
    assert "- It is tiny." in page
    assert call("reproduce", "tiny-table", "--workers", "1")[0] == 0
    page = (tmp_path / "docs" / "reproduction.md").read_text()
    assert page.count("## A tiny table") == 1
    assert "Not run yet" not in page


def test_reproduce_numbers_are_those_of_the_results_file(call, tmp_path):
    call("reproduce", "tiny-table", "--only", "harsh", "--workers", "1")
    results = json.loads((tmp_path / "docs" / "results" / "tiny-table.json").read_text())
    system = results["pieces"]["harsh"]["systems"]["em"]
    accuracies = system["streams"]["label"]["accuracy"]
    ours = 100 * statistics.fmean(accuracies)
    row = f"| EM | 40.00 ± 2.00 | {ours:.2f} ± {100 * statistics.stdev(accuracies):.2f} | {ours - 40:+.2f} |"
    assert row in (tmp_path / "docs" / "reproduction.md").read_text()
    assert set(system["clients"]) == {"0", "1"}
    assert set(system["clients"]["0"]) == {"3", "4", "5"}
    assert any("tuned on source validation data" in remark for remark in system["remarks"])
    assert results["pieces"]["harsh"]["versions"]["torch"]


def test_reproduce_keeps_what_others_wrote_on_the_page(call, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "reproduction.md").write_text("# Mine\n\n<!-- other -->\nkept\n<!-- /other -->\n")
    call("reproduce", "tiny-table", "--only", "mild", "--workers", "1")
    page = (tmp_path / "docs" / "reproduction.md").read_text()
    assert page.startswith("# Mine")
    assert "kept" in page
    assert "## A tiny table" in page


def test_reproduce_of_something_unknown_names_the_nearest(call):
    code, printed = call("reproduce", "tiny-tabel")
    assert code == 2
    assert "did you mean 'tiny-table'" in printed.err
    code, printed = call("reproduce", "tiny-table", "--only", "mil")
    assert code == 2
    assert "did you mean 'mild'" in printed.err


@pytest.mark.parametrize("name", published.names())
def test_published_tables_have_a_value_for_every_system_and_piece(name):
    paper = published.published(name)
    assert paper.experiment in shipped()
    for piece, overrides in paper.pieces.items():
        systems = {system.name for system in read(paper.experiment, overrides).systems}
        assert set(paper.rows) <= systems
        assert all(len(paper.values[row][piece]) == 2 for row in paper.rows.values())
