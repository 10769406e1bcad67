"""`acclimate report`: a page, tables, and pictures as files."""

import csv
import errno
import io
import json
from xml.etree import ElementTree

import pytest
import yaml

import battery
from acclimate.report.page import page


@pytest.fixture
def tiny(call, tmp_path):
    """Run a tiny experiment."""

    def run(*overrides, **more):
        (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(battery.tiny(**more)))
        assert call("run", "tiny.yaml", *overrides, "--workers", "1")[0] == 0

    return run


def test_run_writes_a_page_and_says_where(call, tiny, tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(battery.tiny()))
    code, out, err = call("run", "tiny.yaml", "--workers", "1", "--json")
    assert code == 0
    json.loads(out)  # nothing else is printed there
    (path,) = tmp_path.glob("runs/*/report.html")
    assert f"report: {path.relative_to(tmp_path)}" in err
    assert "Who was helped and who was harmed" in path.read_text(encoding="utf-8")


def test_report_as_text_fits_a_narrow_terminal(call, tiny, monkeypatch):
    tiny()
    monkeypatch.setenv("COLUMNS", "60")
    told = call("report", "tiny", "--text")[1]
    assert "worst 10 %" in told
    assert max(map(len, told.splitlines())) <= 60


def test_report_of_runs_that_may_only_be_read_is_written_where_one_is(call, tiny, tmp_path, monkeypatch):
    tiny()
    from acclimate.data import folders

    write = folders.write_whole

    def forbidding(path, content):
        if "runs" in path.parts:
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        write(path, content)

    monkeypatch.setattr(folders, "write_whole", forbidding)
    code, _, err = call("report", "tiny")
    assert code == 0
    (path,) = tmp_path.glob("tiny-*-report.html")
    assert f"report: {path.name}" in err


def test_report_prints_tables_for_papers_and_pipelines(call, tiny):
    tiny(seeds=[0, 1])
    rows = list(csv.DictReader(io.StringIO(call("report", "tiny", "--csv")[1])))
    assert {(row["system"], row["stream"], row["seed"]) for row in rows} == {
        (system, stream, seed) for system in ("none", "tent") for stream in ("label", "feature") for seed in "01"
    }
    (plain,) = json.loads(call("report", "tiny", "--json")[1])
    assert [line["system"] for line in plain["lines"]] == ["none", "tent"]
    latex = call("report", "tiny", "--latex")[1]
    assert r"\toprule" in latex and latex.count(r"\textbf") == 2
    assert "versions: acclimate" in call("report", "tiny", "--text")[1]
    code, _, err = call("report", "tiny", "--csv", "--latex")
    assert (code, "one of --csv, --latex at a time" in err) == (2, True)


def test_report_of_several_runs_is_one_page(call, tiny, tmp_path):
    for rounds in (1, 2):
        tiny(f"phases.0.rounds={rounds}")
    names = sorted(path.name for path in (tmp_path / "runs").iterdir() if path.is_dir())
    assert call("report", *names, "--out", "both.html")[0] == 0
    text = (tmp_path / "both.html").read_text(encoding="utf-8")
    assert "Side by side" in text and all(name in text for name in names)


def test_pictures_are_written_and_twice_the_same(call, tiny, tmp_path):
    tiny(systems=["fedamp+tent", "fedavg+tent", "ldawa+tent"])
    code, out, err = call("report", "tiny", "--pictures", "drawn")
    assert (code, err) == (0, "")
    paths = [tmp_path / line.removeprefix("written: ") for line in out.splitlines()]
    kinds = ["population", "helped", "accuracy", "matrices", "weights"]
    (run,) = [path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()]
    of_streams = [f"{run}-{kind}-{stream}.svg" for kind in kinds for stream in ("label", "feature")]
    assert {path.name for path in paths} == {*of_streams, f"{run}-population-source.svg", f"{run}-learning.svg"}
    first = {path.name: path.read_bytes() for path in paths}
    for content in first.values():
        ElementTree.fromstring(content)
    assert b"fedamp+tent" in first[f"{run}-matrices-label.svg"]
    assert b"ldawa+tent" not in first[f"{run}-matrices-label.svg"]  # it weighs layers, not clients
    assert call("report", "tiny", "--pictures", "drawn")[0] == 0
    assert {path.name: path.read_bytes() for path in paths} == first


def test_pictures_of_a_chosen_slot_client_and_format(call, tiny, tmp_path):
    tiny(systems=["fedamp+tent"])
    words = ("--slot", "0", "--client", "4", "--seed", "0", "--pictures", "drawn")
    assert call("report", "tiny", *words)[0] == 0
    pictures = {path.name.split("-", 2)[2]: path for path in (tmp_path / "drawn").iterdir()}
    assert "slot 0" in pictures["matrices-label.svg"].read_text()
    assert "client 4" in pictures["weights-label.svg"].read_text()
    assert call("report", "tiny", *words, "--format", "pdf")[0] == 0
    assert pictures["matrices-label.svg"].with_suffix(".pdf").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--slot", "77"), "nothing was exchanged in slot 77; the first exchange was in slot 0, the last in slot 1"),
        (("--client", "77"), "client 77 exchanged nothing; there are clients 3–5"),
        (("--seed", "77"), "has no seed 77; choose one of seed 0"),
    ],
)
def test_pictures_of_something_that_is_not_there_say_what_is(call, tiny, words, message):
    tiny(systems=["fedamp+tent"])
    code, _, err = call("report", "tiny", *words)
    assert code == 2
    assert message in err


def test_pictures_compare_the_rates_of_several_runs(call, tiny, tmp_path):
    atp = {"name": "atp", "phases": [{"name": "atp", "rounds": 1}], "adapter": "atp"}
    for noise in (0.1, 0.8):
        tiny(f"scenario.noise={noise}", systems=[atp], seeds=[0, 1])
    names = [path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()]
    code, out, _ = call("report", *names, "--pictures", "drawn")
    assert code == 0
    assert out.count("rates") == 1
    picture = (tmp_path / "drawn" / f"{names[0]}-rates-compared.svg").read_bytes()
    words = {
        "".join(item.itertext()) for item in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text")
    }
    assert {"scenario.noise=0.1", "scenario.noise=0.8", "conv1", "linear5", "norm weight", "running mean"} <= words


@pytest.fixture(autouse=True)
def _no_bundle(monkeypatch):
    """Nobody runs the scripts here."""
    monkeypatch.setattr(page, "vega", lambda: "/* Vega */")
