"""Every stream and every group of a run reaches the table and the page; numbers worked out by hand on a toy store."""

import json

import pytest
import yaml

from acclimate.errors import ConfigError
from acclimate.experiment import catalog
from acclimate.experiment.published import Claim, Piece, Published
from acclimate.report.reproduction import write
from acclimate.report.table import table
from acclimate.report.text import text
from toy_run import COUNTS, DOMAINS, toy


def paper(values=None, **more):
    rows = {"none": "None", "tent": "Tent"}
    return Published("toy", "Toy", "nobody", {"all": Piece("quickstart")}, rows, values or {}, **more)


def page(folder, table, **more):
    write(table, {"all": toy(folder, **more)[1]}, folder / "docs")
    written = (folder / "docs" / "reproduction" / "toy.md").read_text()
    return written, json.loads((folder / "docs" / "results" / "toy.json").read_text())


def after(written, caption):
    """The cells of the table below a line."""
    lines = [*written[written.index(caption) :].splitlines()[2:], ""]
    table = lines[: lines.index("")]
    return [line.strip("| ").split(" | ") for line in table if "---" not in line]


def test_table_has_accuracy_by_group_and_the_mean_over_groups(tmp_path):
    """Tent on corrupted: 6 / 10 on amazon, (2 + 1) / (2 + 4) on dslr, and (0.6 + 0.5) / 2."""
    _, run = toy(tmp_path)
    made = table(run)
    cells = {line.system: line.cells for line in made.lines}
    assert cells["tent"]["corrupted"].groups == {"mean": [0.55], "amazon": [0.6], "dslr": [0.5]}
    assert cells["tent"]["corrupted"].accuracy == [9 / 16]
    assert cells["none"]["original"].groups["mean"] == [pytest.approx((8 / 10 + 5 / 6) / 2)]
    shown = text(made, run)
    assert "accuracy by group, stream corrupted" in shown
    assert "│ tent   │ 55.0 │   60.0 │ 50.0 │" in shown
    assert ", seed 0; worst 10 %" in shown.replace("\n", " ")


def test_table_has_no_groups_where_there_are_not_several(tmp_path):
    _, run = toy(tmp_path, groups=dict.fromkeys(DOMAINS, "amazon"))
    assert all(not cell.groups for line in table(run).lines for cell in line.cells.values())


def test_table_has_groups_that_differ_from_seed_to_seed(tmp_path):
    store, run = toy(tmp_path, seeds=(0, 1))
    store.note(run.id, "", 1, "groups", {0: "webcam", 1: "dslr", 2: "dslr"})
    (tent,) = [line.cells["corrupted"] for line in table(run).lines if line.system == "tent"]
    assert tent.groups == {"mean": [0.55, 0.55], "amazon": [0.6], "dslr": [0.5, 0.5], "webcam": [0.6]}


def test_page_shows_every_stream_of_domain_shift(tmp_path):
    """The paper has values for the corrupted images only; the original ones stand beside them with a dash."""
    values = {"Tent": {"all": {"corrupted": {"amazon": (50.0, 1.5), "dslr": 40.0}}}}
    written, results = page(tmp_path, paper(values))
    assert after(written, "Paper / ours, by stream, means over groups:") == [
        ["method", "original", "corrupted", "mean"],
        ["None", "– / 81.67", "– / 41.67", "– / 61.67"],
        ["Tent", "– / 78.33", "45.00 / 55.00", "– / 66.67"],
    ]
    assert after(written, "Paper / ours, by group, stream corrupted:") == [
        ["method", "mean", "amazon", "dslr"],
        ["None", "– / 41.67", "– / 50.00", "– / 33.33"],
        ["Tent", "45.00 / 55.00", "50.00 ± 1.50 / 60.00", "40.00 / 50.00"],
    ]
    assert after(written, "Ours, by group, stream original:")[2] == ["Tent", "78.33", "90.00", "66.67"]
    assert after(written, "Stream corrupted:")[2][:2] == ["Tent", "56.25"]  # over all images
    streams = results["pieces"]["all"][0]["systems"]["tent"]["streams"]
    assert streams["corrupted"]["clients"] == {"0": {"0": 0.6, "1": 1.0, "2": 0.25}}
    assert streams["original"]["clients"]["0"]["2"] == 0.5
    assert results["pieces"]["all"][0]["groups"] == {"0": {"0": "amazon", "1": "dslr", "2": "dslr"}}


def test_page_has_the_papers_mean_over_groups_only_if_it_is_printed_or_follows(tmp_path):
    printed = {
        "None": {"all": {"corrupted": {"amazon": 50.0, "mean": 30.0}}},
        "Tent": {"all": {"corrupted": {"dslr": 1}}},
    }
    written, _ = page(tmp_path, paper(printed))
    none, tent = after(written, "Paper / ours, by group, stream corrupted:")[1:]
    assert (none[1], tent[1]) == ("30.00 / 41.67", "– / 55.00")


def test_page_compares_values_by_stream_with_their_mean(tmp_path):
    """BTFL's shape: one value with its spread for each stream, and the average of the row."""
    values = {"Tent": {"all": {"original": (80.0, 0.5), "corrupted": (50.0, 2.0), "mean": 66.0}}}
    written, _ = page(tmp_path, paper(values), groups={})
    assert after(written, "Paper / ours, by stream:")[2] == ["Tent", "80.00 / 81.25", "50.00 / 56.25", "66.00 / 68.75"]
    assert after(written, "Stream corrupted:")[2] == ["Tent", "50.00 ± 2.00", "56.25", "+6.25", "nan", "25.00", "0 %"]
    assert after(written, "Stream original:")[2][-1] == "33 %"  # client 2 was better off without
    assert "by group" not in written


def test_page_judges_streams_groups_and_the_mean_apart(tmp_path):
    """Tent − None on client 1: +50 on each stream; on client 2: −50 and 0, so −25."""
    claim = {"higher": ["tent"], "lower": ["none"]}
    claims = [Claim(**claim, stream=["corrupted"]), Claim(**claim, stream=["mean"], group=["dslr"])]
    written, results = page(tmp_path, paper(claims=claims))
    first, second = results["claims"]
    assert (first["stream"], first["group"], first["difference"]) == ("corrupted", "", pytest.approx(20))
    assert (second["stream"], second["group"], second["difference"]) == ("mean", "dslr", pytest.approx(12.5))
    assert "| all, mean, dslr | Tent above None | within noise | +12.50 ± 37.50 |" in written


def test_page_counts_validation_as_a_stream_but_not_in_the_mean(tmp_path):
    counts = {"test": COUNTS["original"], "validation": COUNTS["corrupted"]}
    values = {"Tent": {"all": {"test": (80.0, 0.5), "validation": (50.0, 2.0)}}}
    written, _ = page(tmp_path, paper(values), counts=counts, groups={})
    assert after(written, "Paper / ours, by stream:")[0] == ["method", "test", "validation"]
    assert after(written, "Stream validation:")[2][1:4] == ["50.00 ± 2.00", "56.25", "+6.25"]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (50.0, "values.Tent.all: say of which stream, as in {original: 50.0}; Possible: corrupted, mean, original"),
        ({"corupted": 50.0}, "the run has no stream 'corupted'; did you mean 'corrupted'"),
        ({"corrupted": {"dslrs": 50.0}}, "the run has no group 'dslrs'; did you mean 'dslr'? Possible: amazon, dslr"),
    ],
)
def test_page_refuses_values_of_what_the_run_has_not(tmp_path, value, message):
    with pytest.raises(ConfigError) as error:
        page(tmp_path, paper({"Tent": {"all": value}}))
    assert message in str(error.value)
    assert not (tmp_path / "docs").exists()


def test_page_of_several_streams_by_shift_has_a_table_for_each(tmp_path):
    values = {"Tent": {"all": {"corrupted": {"snow": 50.0, "mean": 40.0}, "mean": 60.0}}}
    written, _ = page(tmp_path, paper(values, by_shift=True), groups={})
    assert after(written, "Paper / ours, stream corrupted:")[2] == ["Tent", "40.00 / 56.25", "50.00 / 56.25"]
    assert after(written, "Paper / ours, stream original:")[2] == ["Tent", "– / 81.25", "– / 81.25"]
    assert after(written, "Paper / ours, by stream:")[2][1:] == ["– / 81.25", "40.00 / 56.25", "60.00 / 68.75"]


def test_results_of_earlier_code_are_read_and_show_all_their_streams(tmp_path):
    """It kept the accuracy of every stream, but clients and shifts of the first one only."""
    table = paper(claims=[Claim(higher=["tent"], lower=["none"])])
    _, results = page(tmp_path, table)
    (piece,) = results["pieces"]["all"]
    results["pieces"]["all"], piece["seeds"] = piece, [0]
    del piece["groups"]
    piece["stream"] = "original"
    for system in piece["systems"].values():
        for key in ("of", "seeds", "code"):
            del system[key]
        for cell in system["streams"].values():
            del cell["groups"]
            kept = {key: cell.pop(key) for key in ("clients", "shifts")}
            system.update({key: system.get(key, value) for key, value in kept.items()})
    (tmp_path / "docs" / "results" / "toy.json").write_text(json.dumps(results))
    write(table, {}, tmp_path / "docs")
    written = (tmp_path / "docs" / "reproduction" / "toy.md").read_text()
    assert after(written, "Ours, by stream:")[2] == ["Tent", "81.25", "56.25", "68.75"]
    again = json.loads((tmp_path / "docs" / "results" / "toy.json").read_text())
    assert [claim["stream"] for claim in again["claims"]] == ["original"]
    assert again["pieces"]["all"][0]["systems"]["tent"]["streams"]["original"]["clients"]["0"]["0"] == 0.9


SMALL = ["scenario.size=18", "scenario.per_source=30", "scenario.source_clients=3", "scenario.test_clients=3"]
SMALL += ["scenario.major=6", "phases.0.rounds=1", "systems=[none,em]", "seeds=[0]", "test.batch_size=10"]


@pytest.fixture
def shipped_table(tmp_path, monkeypatch):
    """Writes a table of the shipped experiment `quickstart`, made tiny: streams label and feature."""
    monkeypatch.setattr(catalog, "PUBLISHED", tmp_path / "published")
    (tmp_path / "published").mkdir()

    def write(**more):
        content = {
            "title": "Two streams",
            "source": "nobody",
            "experiment": "quickstart",
            "pieces": {"digits": [*SMALL, "test.validation=true"]},
            "rows": {"none": "No adaptation", "em": "EM"},
            "pictures": True,
            **more,
        }
        (tmp_path / "published" / "two.yaml").write_text(yaml.safe_dump(content, sort_keys=False))

    return write


def test_reproduce_of_a_shipped_experiment_shows_all_its_streams(call, tmp_path, shipped_table):
    values = {"EM": {"digits": {"label": [50, 1], "validation": 60, "mean": 55}}}
    shipped_table(values=values, claims=[{"best": "em"}, {"stream": "mean", "near": ["em", "none"]}])
    assert call("reproduce", "two", "--workers", "1")[0] == 0
    written = (tmp_path / "docs" / "reproduction" / "two.md").read_text()
    results = json.loads((tmp_path / "docs" / "results" / "two.json").read_text())
    em = results["pieces"]["digits"][0]["systems"]["em"]["streams"]
    label, feature, validation = (100 * em[stream]["accuracy"][0] for stream in ("label", "feature", "validation"))
    head, _, row = after(written, "Paper / ours, by stream:")
    assert head == ["method", "label", "feature", "validation", "mean"]
    assert row == [
        "EM",
        f"50.00 / {label:.2f}",
        f"– / {feature:.2f}",
        f"60.00 / {validation:.2f}",
        f"55.00 / {(label + feature) / 2:.2f}",
    ]
    assert set(em["validation"]["clients"]["0"]) == {"0", "1", "2"}
    assert [claim["stream"] for claim in results["claims"]] == ["label", "feature", "validation", "mean"]
    drawn = {path.name for path in (tmp_path / "docs" / "figures").iterdir()}
    assert drawn == {"two-digits-accuracy-label.svg", "two-digits-accuracy-feature.svg"}  # validation is one batch
    assert call("reproduce", "two", "--no-run", "--runs", "elsewhere")[0] == 0
    assert (tmp_path / "docs" / "reproduction" / "two.md").read_text() == written


def test_reproduce_refuses_an_unknown_stream_before_it_runs_anything(call, tmp_path, shipped_table):
    shipped_table(values={"EM": {"digits": {"lable": 50}}})
    code, _, error = call("reproduce", "two", "--workers", "1")
    assert code == 2
    assert "values.EM.digits: the run has no stream 'lable'; did you mean 'label'" in error
    assert not (tmp_path / "runs").exists()
