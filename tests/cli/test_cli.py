import json
import re
from types import SimpleNamespace

import pytest
import yaml
from PIL import Image

import battery
from acclimate import __version__
from acclimate.cli import app, listing
from acclimate.cli.describe import describe
from acclimate.options import Share

EXPERIMENT = battery.tiny(systems=["tent", "em"], seeds=[0, 1])


@pytest.fixture(autouse=True)
def _experiment(tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(EXPERIMENT))


def test_version(call):
    assert call("--version") == (0, f"acclimate {__version__}\n", "")


def test_run_prints_the_table_and_a_second_time_at_once(call, tmp_path, monkeypatch):
    monkeypatch.setenv("ACCLIMATE_CACHE", str(tmp_path / "cache"))  # nothing was trained before
    code, out, err = call("run", "tiny.yaml", "--workers", "1")
    assert code == 0
    assert re.search(r"tent +│ +[0-9.]+ ± [0-9.]+ │", out)
    assert "seed 1 (2/2): fedavg: 2/2" in err
    code, again, err = call("run", "tiny.yaml", "--workers", "1")
    assert (code, again) == (0, out)
    assert re.fullmatch(r"report: runs/tiny-\w+/report.html \(open it in a browser\)\n", err)  # nothing else was done


def test_run_json_has_every_column(call):
    _, out, _ = call("run", "tiny.yaml", "--workers", "1", "--json")
    table = json.loads(out)
    assert [line["system"] for line in table["lines"]] == ["none", "tent", "em"]
    assert table["streams"] == ["label", "feature"]
    cell = table["lines"][1]["cells"]["label"]
    assert cell.pop("groups") == {}  # of a scenario without groups
    assert set(cell) == {"accuracy", "client_accuracy", "balanced_accuracy", "worst_decile", "harmed"}
    assert all(len(values) == 2 and all(0 <= v <= 1 for v in values) for values in cell.values())
    assert table["lines"][1]["ms_per_batch"] > 0
    assert table["lines"][1]["knowledge_bytes"] > 100_000


def test_run_with_a_typo_says_everything_at_once_and_exits_with_2(call):
    code, out, err = call("run", "tiny.yaml", "seds=[0]", "phases.0.rouds=3")
    assert (code, out) == (2, "")
    assert "did you mean 'seeds'" in err
    assert "did you mean 'rounds'" in err
    assert "Traceback" not in err


def test_run_of_a_missing_file_exits_with_2(call):
    code, _, err = call("run", "nothing.yaml")
    assert code == 2
    assert "no such file" in err


def test_run_of_an_impossible_partition_says_what_is_possible(call):
    code, _, err = call("run", "tiny.yaml", "scenario.major=200", "--workers", "1")
    assert code == 2
    assert "asked for" in err
    assert "possible: about" in err


def test_run_refuses_strange_options(call):
    assert call("run", "tiny.yaml", "--workers", "0")[0] == 2
    assert call("dance")[0] == 2


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("methods", "fedamp"),
        ("training", "fedavg"),
        ("calibration", "bbse"),
        ("phases", "bbse"),
        ("adapters", "tent"),
        ("aggregators", "tsa"),
        ("terms", "fedprox"),
        ("systems", "fedtta++"),
        ("tables", "atp-table5"),
        ("scenarios", "twofold"),
        ("models", "mlp"),
        ("data", "digits"),
        ("experiments", "quickstart"),
    ],
)
def test_list_names_what_there_is(call, what, expected):
    code, out, _ = call("list", what)
    assert code == 0
    assert expected in out
    rows = json.loads(call("list", what, "--json")[1])
    assert expected in [row["name"] for row in rows]


def test_list_of_runs_and_of_nothing(call):
    assert call("list", "runs")[1] == "nothing here yet\n"
    call("run", "tiny.yaml", "seeds=[0]", "--workers", "1")
    assert json.loads(call("list", "runs", "--json")[1])[0]["finished"]
    code, _, err = call("list", "runz")
    assert code == 2
    assert "did you mean 'runs'" in err


def test_show_gives_options_and_defaults(call):
    code, out, _ = call("show", "tent")
    assert code == 0
    assert "Wang et al., ICLR 2021" in out
    assert re.search(r"lr +float > 0, default 0.001", out)
    (described,) = json.loads(call("show", "tent", "--json")[1])
    assert described["options"]["steps"]["default"] == 1


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("tent", "layers +all . 2d, default all"),
        ("t3a", "keep +int ≥ 1 . null, default null"),
        ("fedamp", "sigma +float > 0 . median, default median"),
        ("fedprox", r"local +mapping with lr, epochs, .*, default \{lr: 0.1, epochs: 1, .*\}"),
        ("ttfl", r"reversed +list of int, default \[\]"),
        ("timetable", r"table +mapping of str . int to list of str, default \{0-3: \[clean, rotation 20 x 2\]\}"),
    ],
)
def test_show_speaks_of_options_as_an_experiment_file_does(call, name, line):
    assert re.search(line, call("show", name)[1])


def test_show_says_that_an_option_is_required():
    class Method:
        """Of no use."""

        def __init__(self, *, share: Share):
            pass

    described = describe("method", "nowhere", SimpleNamespace(load=lambda: Method, grid=None, paper=""))
    assert "  share  float ≥ 0, ≤ 1, required" in described["text"]


def test_show_of_a_name_in_two_rooms_shows_both(call):
    out = call("show", "bbse")[1]
    assert "bbse (calibration)" in out
    assert "bbse (adapters)" in out


def test_show_an_experiment_prints_its_file(call):
    assert "name: quickstart" in call("show", "quickstart")[1]


def test_show_a_published_table_prints_its_file_and_the_command(call):
    """By a name of its own, or by that of its experiment, whose file it still is."""
    table, both = call("show", "fedtta-table1")[1], call("show", "atp-table5")[1]
    assert yaml.safe_load(table)["values"]["FedAvg"]["mnist"]["test"] == [94.69, 0.08]
    assert yaml.safe_load(both)["name"] == "atp-table5"
    assert "acclimate reproduce fedtta-table1" in table and "acclimate reproduce atp-table5" in both
    assert "reproduce" not in call("show", "fedtta-mnist")[1]


def test_show_of_something_unknown_names_the_nearest(call):
    code, _, err = call("show", "tnet")
    assert code == 2
    assert "did you mean 'tent'" in err


def test_show_and_report_find_a_run_by_the_beginning_of_its_name(call, tmp_path):
    call("run", "tiny.yaml", "seeds=[0]", "--workers", "1")
    assert "tent" in call("show", "tiny-")[1]
    code, out, _ = call("report", "tiny", "--text")
    assert code == 0
    assert "versions: acclimate" in out
    folder = next(path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    assert call("report", f"runs/{folder.name}", "--text")[1] == out


def test_report_never_overwrites(call, tmp_path):
    call("run", "tiny.yaml", "seeds=[0]", "--workers", "1")
    assert call("report", "tiny", "--text", "--out", "report.txt")[0] == 0
    before = (tmp_path / "report.txt").read_text()
    code, _, err = call("report", "tiny", "--text", "--out", "report.txt")
    assert code == 2
    assert "not overwritten" in err
    assert (tmp_path / "report.txt").read_text() == before


def test_data_check_shows_what_is_here(call):
    code, out, _ = call("data", "check")
    assert code == 0
    assert re.search(r"digits .*here", out)


def test_show_scenario_draws_who_meets_what_when(call):
    code, out, _ = call("show", "scenario", "twofold", "size=18", "test_clients=2", "source_clients=2")
    assert code == 0
    assert "2 source clients, 2 test clients, 10 classes, images 1x18x18" in out
    assert re.search(r"2 label +68 +1 +██▁▁▁▁▁▁▁▁", out)
    assert "a  noise 0.8" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("twofol",), "did you mean 'twofold'"),
        (("twofold", "sze=3"), "did you mean 'size'"),
        ((), "unknown scenario ''"),
    ],
)
def test_show_scenario_names_what_is_wrong(call, words, message):
    code, _, err = call("show", "scenario", *words)
    assert code == 2
    assert message in err


def test_data_preview_draws_a_sheet_and_never_overwrites(call, tmp_path):
    (tmp_path / "there.png").write_text("mine")
    code, _, err = call("data", "preview", "there.png")
    assert code == 2
    assert "not overwritten" in err
    assert (tmp_path / "there.png").read_text() == "mine"
    assert call("data", "preview", "sheet.png")[0] == 0
    with Image.open(tmp_path / "sheet.png") as sheet:
        width, height = sheet.size
    assert height > 19 * 32
    assert width > 6 * 32


def commands(typed, path=()):
    """Every command and group, as words."""
    yield path
    for info in typed.registered_commands:
        yield (*path, info.name or info.callback.__name__)
    for group in typed.registered_groups:
        yield from commands(group.typer_instance, (*path, group.name))


@pytest.mark.parametrize("words", list(commands(app)), ids=" ".join)
def test_help_is_plain_text(call, words):
    code, out, _ = call(*words, "--help")
    assert code == 0
    assert "Usage: " in out
    assert "\\[" not in out


def test_suggestions_name_everything_once(call):
    possible = call("show", "zzz")[2].split("Possible: ")[1].strip().split(", ")
    assert "bbse" in possible  # which two rooms have
    assert len(possible) == len(set(possible))


def test_the_kinds_that_list_names_are_those_it_knows(call):
    code, _, err = call("list", "zzz")
    assert code == 2
    assert sorted(re.split(", | or ", listing.KINDS)) == err.split("Possible: ")[1].strip().split(", ")


@pytest.mark.parametrize("columns", [60, 40])
def test_tables_and_lists_fit_narrow_terminals(call, monkeypatch, columns):
    call("run", "tiny.yaml", "--workers", "1")
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = call("show", "tiny")[1]
    for text in (shown, call("list", "adapters")[1], call("list", "runs")[1]):
        assert max(map(len, text.splitlines())) <= columns
    for system in ("none", "tent", "em"):
        assert system in shown
    assert shown.count("±") >= 6  # three systems, two streams
    assert shown.count("%\n") or shown.count("% │")


def test_a_table_of_one_seed_has_no_spread(call):
    out = call("run", "tiny.yaml", "seeds=[0]", "--workers", "1")[1]
    assert "±" not in out
    assert ", seed 0;" in out
