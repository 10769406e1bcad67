import json
import re
import statistics
from types import SimpleNamespace

import pytest
import yaml

import battery
from acclimate.experiment import catalog, published
from acclimate.experiment.reader import read
from acclimate.report import markdown
from acclimate.report.measured import Part
from acclimate.report.page.page import page
from acclimate.report.significance import signed
from acclimate.report.table import table
from acclimate.store.database import Store

EXPERIMENT = battery.tiny(systems=["none", {"name": "em", "tune": {"iterations": [1, 2]}}], seeds=[0, 1])
PAPER = {
    "title": "A tiny table",
    "source": "nobody",
    "experiment": "tiny.yaml",
    "pieces": {"mild": ["scenario.noise=0.1"], "harsh": ["scenario.noise=0.8"]},
    "rows": {"none": "No adaptation", "em": "EM"},
    "values": {
        row: {"mild": {"label": [50.0, 1.0]}, "harsh": {"label": [40.0, 2.0]}} for row in ("No adaptation", "EM")
    },
    "deviations": ["It is tiny."],
}


@pytest.fixture
def paper(tmp_path, monkeypatch):
    """Writes the table with other entries; one of None is left out."""
    monkeypatch.setattr(catalog, "PUBLISHED", tmp_path / "published")
    (tmp_path / "published").mkdir()

    def write(**more):
        chosen = {key: value for key, value in {**PAPER, **more}.items() if value is not None}
        (tmp_path / "published" / "tiny-table.yaml").write_text(yaml.safe_dump(chosen, sort_keys=False))

    write()
    return write


@pytest.fixture(autouse=True)
def _experiment(paper, tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(EXPERIMENT))


def test_reproduce_writes_a_section_piece_by_piece(call, tmp_path):
    assert call("reproduce", "tiny-table", "--only", "mild", "--workers", "1")[0] == 0
    page = (tmp_path / "docs" / "reproduction" / "tiny-table.md").read_text()
    assert "## mild" in page
    assert "## harsh" not in page
    assert "Not run yet: harsh." in page
    assert "- It is tiny." in page
    assert call("reproduce", "tiny-table", "--workers", "1")[0] == 0
    page = (tmp_path / "docs" / "reproduction" / "tiny-table.md").read_text()
    assert page.count("# A tiny table") == 1
    assert "Not run yet" not in page


def test_reproduce_numbers_are_those_of_the_results_file(call, tmp_path):
    call("reproduce", "tiny-table", "--only", "harsh", "--workers", "1")
    results = json.loads((tmp_path / "docs" / "results" / "tiny-table.json").read_text())
    (sitting,) = results["pieces"]["harsh"]
    system = sitting["systems"]["em"]
    accuracies = system["streams"]["label"]["accuracy"]
    ours = 100 * statistics.fmean(accuracies)
    row = f"| EM | 40.00 ± 2.00 | {ours:.2f} ± {100 * statistics.stdev(accuracies):.2f} | {ours - 40:+.2f} |"
    assert row in (tmp_path / "docs" / "reproduction" / "tiny-table.md").read_text()
    for stream in ("label", "feature"):
        assert set(system["streams"][stream]["clients"]) == {"0", "1"}
        assert set(system["streams"][stream]["clients"]["0"]) == {"3", "4", "5"}
    assert any("tuned on source validation data" in remark for remark in system["remarks"])
    assert sitting["versions"]["torch"]


def test_page_of_a_run_shows_the_papers_values_where_it_is_a_piece_or_a_part_of_one(call, tmp_path):
    def said(*words):
        assert call("run", "tiny.yaml", "--workers", "1", *words)[0] == 0
        store = Store(tmp_path / "runs" / "store.sqlite")
        run = store.runs()[-1]
        content, ours = page([run]), 100 * statistics.fmean(table(run).lines[-1].cells["label"].accuracy)
        store.close()
        return re.sub(r"\s+", " ", re.sub("<[^>]+>", " ", content)), f"EM label 40.00 {ours:.2f} {signed(ours - 40, 2)}"

    whole, row = said("scenario.noise=0.8")
    assert "Against the paper" in whole and row in whole
    assert "Not in this run" not in whole
    part, row = said("scenario.noise=0.8", "seeds=[1]", "systems=[em]")
    assert "Against the paper" in part and row in part
    assert "Not in this run: harsh (seed 0)." in part
    assert "Against the paper" not in said("scenario.noise=0.7")[0]


def test_page_of_a_piece_that_is_still_training_has_no_values_yet(tmp_path, monkeypatch):
    """Found in a run of Office-10: the report ended in an unexpected error until something was tested."""
    monkeypatch.chdir(tmp_path)
    experiment = read("tiny.yaml", ["scenario.noise=0.8"])
    store = Store(tmp_path / "store.sqlite")
    store.note(store.run(experiment.run_name, experiment.plain(), {"torch": "2"}), "", -1, "streams", ["label"])
    assert "Against the paper" not in page(store.runs())
    store.close()


def test_reproduce_names_systems_that_another_run_has_measured_together(call, tmp_path):
    call("run", "tiny.yaml", "scenario.noise=0.1", "seeds=[1]", "--workers", "1")
    (run,) = (folder.name for folder in (tmp_path / "runs").glob("tiny-*"))
    call("reproduce", "tiny-table", "--only", "mild", "--workers", "1")
    assert f"- mild: none, em: seed 1: as measured by run {run}\n" in page_and_results(tmp_path)[0]


def test_reproduce_tells_work_from_the_time_between_start_and_end(call, tmp_path):
    call("reproduce", "tiny-table", "--only", "mild", "--workers", "1")
    results, page = (
        tmp_path / "docs" / "results" / "tiny-table.json",
        tmp_path / "docs" / "reproduction" / "tiny-table.md",
    )
    (sitting,) = json.loads(results.read_text())["pieces"]["mild"]
    worked = sitting["worked"]
    assert worked > 0
    counted = f"{worked / 60:.1f} minutes of work, excluding cached work"
    assert counted in page.read_text()
    # What earlier code has measured says only when it began and when it ended.
    old = json.loads(results.read_text())
    piece = {
        **sitting,
        "started": "2026-11-15T10:00:00+00:00",
        "finished": "2026-11-15T12:30:00+00:00",
        "seeds": [0, 1],
    }
    del piece["worked"]
    results.write_text(json.dumps({**old, "pieces": {"mild": piece}}))
    call("reproduce", "tiny-table", "--only", "harsh", "--workers", "1", "--runs", str(tmp_path / "other"))
    assert ", 150.0 minutes from start to end, including pauses, excluding cached work;" in page.read_text()


def test_reproduce_without_running_writes_again_what_was_measured(call, tmp_path, paper):
    code, _, error = call("reproduce", "tiny-table", "--no-run")
    assert code == 2
    assert "nothing of tiny-table is measured" in error
    assert not (tmp_path / "runs").exists()
    call("reproduce", "tiny-table", "--only", "mild", "--workers", "1")
    page, results = (
        tmp_path / "docs" / "reproduction" / "tiny-table.md",
        tmp_path / "docs" / "results" / "tiny-table.json",
    )
    before = json.loads(results.read_text())["pieces"]
    for runs in ("runs", "other"):  # from the store, and from the results file alone
        paper(deviations=[f"Written again: {runs}."])
        assert call("reproduce", "tiny-table", "--no-run", "--runs", str(tmp_path / runs))[0] == 0
        assert f"- Written again: {runs}." in page.read_text()
        assert json.loads(results.read_text())["pieces"] == before
    assert not (tmp_path / "other").exists()


def test_reproduce_draws_what_is_varied(call, tmp_path, paper):
    paper(sweeps={"noise of the images": {"little": "mild", "much": "harsh"}})
    call("reproduce", "tiny-table", "--only", "mild", "--workers", "1")
    picture, page = tmp_path / "docs" / "figures" / "tiny-table-by-noise-of-the-images-label.svg", tmp_path / "docs"
    assert not picture.exists()  # one value is no sweep
    call("reproduce", "tiny-table", "--workers", "1")
    drawn = picture.read_text()
    assert ">little<" in drawn and ">much<" in drawn and ">noise of the images<" in drawn
    points = set(
        re.findall(r'aria-label="([^"]*; system: [^"]*)" role="graphics-symbol" aria-roledescription="point"', drawn)
    )
    assert len(points) == 4, points  # two systems, two values
    for stream in ("label", "feature", "mean"):
        name = picture.stem.replace("label", stream)
        assert f"![{name}](../figures/{name}.svg)" in (page / "reproduction" / "tiny-table.md").read_text()
        assert f", stream {stream}<" in (page / "figures" / f"{name}.svg").read_text()


def test_reproduce_draws_two_pieces_against_each_other_and_writes_findings(call, tmp_path, paper):
    paper(tradeoff=["mild", "harsh"])
    call("reproduce", "tiny-table", "--only", "mild", "--workers", "1")
    picture = tmp_path / "docs" / "figures" / "tiny-table-tradeoff-label.svg"
    assert not picture.exists()  # one piece has nothing to be drawn against
    call("reproduce", "tiny-table", "--workers", "1")
    drawn, page = picture.read_text(), (tmp_path / "docs" / "reproduction" / "tiny-table.md").read_text()
    assert "accuracy in %, mild" in drawn and "accuracy in %, harsh" in drawn
    assert f"![{picture.stem}](../figures/{picture.name})" in page
    assert (tmp_path / "docs" / "findings.md").read_text().startswith("# Findings")


def test_sweeps_compare_the_seeds_that_all_values_have(call, tmp_path, paper):
    pieces = {"mild": ["scenario.noise=0.1"], "harsh": ["scenario.noise=0.8", "seeds=[1]"]}
    paper(pieces=pieces, sweeps={"noise": {"little": "mild", "much": "harsh"}})
    call("reproduce", "tiny-table", "--workers", "1")
    assert (
        "Mean over clients and seed 1." in (tmp_path / "docs" / "figures" / "tiny-table-by-noise-label.svg").read_text()
    )
    measured = json.loads((tmp_path / "docs" / "results" / "tiny-table.json").read_text())["pieces"]["mild"]
    part = Part(published.published("tiny-table"), "mild", measured)
    (sitting,) = measured
    page = (tmp_path / "docs" / "reproduction" / "tiny-table.md").read_text()
    assert "Paper / ours, seed 1 of all pieces:" in page
    assert f"| EM | 50.00 / {part.accuracy('em', 'label', [1]):.2f} |" in page
    assert part.accuracy("em", "label", [1]) == 100 * sitting["systems"]["em"]["streams"]["label"]["accuracy"][1]


def test_sweeps_name_pieces(call, paper):
    paper(sweeps={"noise": {"little": "mid"}})
    code, _, error = call("reproduce", "tiny-table", "--no-run")
    assert code == 2
    assert "sweeps.noise: unknown piece 'mid'; " in error


def test_cross_is_a_table_of_adapters_and_aggregators(call, tmp_path, paper):
    cross = {"adapters": {"bn-adapt": "BN-Adapt"}, "aggregators": {"local": "alone", "fedavg": "FedAvg"}}
    systems = battery.tiny(systems=["local+bn-adapt", "fedavg+bn-adapt"], seeds=[0, 1])
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(systems))
    paper(rows={"none": "No adaptation"}, values={}, cross=cross)
    call("reproduce", "tiny-table", "--only", "harsh", "--workers", "1")
    page, results = page_and_results(tmp_path)
    found = results["pieces"]["harsh"][0]["systems"]
    alone, mixed = (
        f"{100 * statistics.fmean(found[f'{name}+bn-adapt']['streams']['label']['accuracy']):.2f}"
        for name in ("local", "fedavg")
    )
    grid = f"| adapter | alone | FedAvg |\n| --- | --- | --- |\n| BN-Adapt | {alone} | {mixed} |\n"
    assert f"Ours, adapters x aggregators, stream label:\n\n{grid}" in page
    assert "Ours, adapters x aggregators, stream feature:\n" in page
    assert f"\n| BN-Adapt, alone | {alone} ± " in page


def test_cross_names_a_cell_that_no_piece_has(call, paper):
    paper(cross={"adapters": {"em": "EM"}, "aggregators": {"fedavg": "FedAvg"}})
    code, _, error = call("reproduce", "tiny-table", "--no-run")
    assert code == 2
    assert "rows: no piece has a system 'fedavg+em'; " in error


def test_reproduce_writes_its_page_whole(call, tmp_path):
    call("reproduce", "tiny-table", "--only", "mild", "--workers", "1")
    page = tmp_path / "docs" / "reproduction" / "tiny-table.md"
    before = page.read_text()
    page.write_text("typed by hand")
    call("reproduce", "tiny-table", "--no-run")
    assert page.read_text() == before


def test_reproduce_with_overrides_names_them_as_a_deviation(call, tmp_path):
    rounds = "phases.0.rounds=1"
    call("reproduce", "tiny-table", "--only", "mild", "--workers", "1")
    assert "run with" not in page_and_results(tmp_path)[0]
    code, _, error = call("reproduce", "tiny-table", rounds, "--only", "mild", "--workers", "1")
    assert code == 0
    assert "tiny-table, piece 1 of 1: mild\n" in error
    page, results = page_and_results(tmp_path)
    assert len(results["pieces"]["mild"]) == 1  # other settings are never joined
    assert f"- mild: run with `{rounds}` on the command line.\n" in page
    assert f"`acclimate reproduce tiny-table {rounds} --only mild`: seeds 0, 1; run " in page
    code, _, error = call("reproduce", "tiny-table", "--only", "mild", "--workers", "1")  # as the table asks for
    assert "mild, measured already" in error
    page, results = page_and_results(tmp_path)
    assert "run with" not in page
    assert len(results["pieces"]["mild"]) == 1


def test_reproduce_with_fewer_systems_judges_what_it_can(call, paper, tmp_path):
    paper(claims=[{"higher": "em", "lower": "none"}, {"best": "em"}])
    assert call("reproduce", "tiny-table", "systems=[none]", "--only", "mild", "--workers", "1")[0] == 0
    assert page_and_results(tmp_path)[1]["claims"] == []


def test_reproduce_says_what_was_measured_otherwise_than_the_table_asks_for_today(call, tmp_path):
    call("reproduce", "tiny-table", "--only", "mild", "--workers", "1")
    assert "today" not in page_and_results(tmp_path)[0]
    changed = {**EXPERIMENT, "phases": [{**EXPERIMENT["phases"][0], "rounds": 7}]}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(changed))
    call("reproduce", "tiny-table", "--no-run")
    line = "- mild: measured with `systems.none|em.phases.fedavg.rounds=2`, not as the table asks for today.\n"
    assert line in page_and_results(tmp_path)[0]


def test_reproduce_of_something_unknown_names_the_nearest(call):
    code, _, error = call("reproduce", "tiny-tabel")
    assert code == 2
    assert "did you mean 'tiny-table'" in error
    code, _, error = call("reproduce", "tiny-table", "--only", "mil")
    assert code == 2
    assert "did you mean 'mild'" in error


def page_and_results(folder):
    results = json.loads((folder / "docs" / "results" / "tiny-table.json").read_text())
    return (folder / "docs" / "reproduction" / "tiny-table.md").read_text(), results


def cells(page, row, number=0):
    """The cells of a row, in one of the tables that have it."""
    return [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith(f"| {row} |")][number]


def ours(results, piece, system, stream="label"):
    return 100 * statistics.fmean(results["pieces"][piece][0]["systems"][system]["streams"][stream]["accuracy"])


def test_reproduce_begins_with_an_overview_of_the_pieces(call, tmp_path):
    call("reproduce", "tiny-table", "--only", "mild", "--workers", "1")
    page, results = page_and_results(tmp_path)
    assert cells(page, "method")[1:] == ["mild, label", "mild, feature", "mild, mean", "harsh"]
    label, feature = (ours(results, "mild", "em", stream) for stream in ("label", "feature"))
    mean = f"– / {(label + feature) / 2:.2f}"
    assert cells(page, "EM")[1:] == [f"50.00 / {label:.2f}", f"– / {feature:.2f}", mean, "40.00 / –"]


def test_reproduce_without_values_shows_ours_alone(call, paper, tmp_path):
    paper(values=None)
    call("reproduce", "tiny-table", "--only", "mild", "--workers", "1")
    page, results = page_and_results(tmp_path)
    assert cells(page, "EM")[1] == f"{ours(results, 'mild', 'em'):.2f}"
    assert cells(page, "EM")[-1] == "–"
    assert cells(page, "method", 2) == ["method", "ours", "class-balanced", "worst 10 %", "harmed"]


def test_reproduce_shows_a_dash_where_the_paper_prints_nothing(call, paper, tmp_path):
    paper(values={"EM": {"mild": {"label": 50}}})
    call("reproduce", "tiny-table", "--only", "mild", "--workers", "1")
    page, results = page_and_results(tmp_path)
    em, none = (cells(page, row, 2)[1:4] for row in ("EM", "No adaptation"))
    assert (em[0], em[2]) == ("50.00", f"{ours(results, 'mild', 'em') - 50:+.2f}")
    assert (none[0], none[2]) == ("–", "–")


def test_reproduce_by_shift_has_a_column_for_every_shift(call, paper, tmp_path):
    table = {"0": ["rotation 30", "rotation 60"], "1": ["clean", "rotation 30"]}
    scenario = {"name": "timetable", "per_segment": 10, "source_clients": 30, "table": table}
    (tmp_path / "shifts.yaml").write_text(yaml.safe_dump(battery.tiny(scenario=scenario, systems=["none"])))
    values = {"No adaptation": {"all": {"rotation": 12.5, "mean": 20}}}
    rows = {"none": "No adaptation"}
    paper(experiment="shifts.yaml", pieces={"all": []}, rows=rows, by_shift=True, values=values)
    assert call("reproduce", "tiny-table", "--workers", "1")[0] == 0
    page, results = page_and_results(tmp_path)
    (system,) = results["pieces"]["all"][0]["systems"]["none"]["streams"].values()
    assert cells(page, "method") == ["method", "mean", "clean", "rotation"]
    found = {shift: 100 * accuracies[0] for shift, accuracies in system["shifts"].items()}
    mean = 100 * system["accuracy"][0]
    assert cells(page, "No adaptation")[1:] == [
        f"20.00 / {mean:.2f}", f"– / {found['clean']:.2f}", f"12.50 / {found['rotation']:.2f}"
    ]  # fmt: skip
    assert mean == pytest.approx((found["clean"] + 3 * found["rotation"]) / 4)  # one of four segments is clean


def test_reproduce_judges_claims_from_the_clients_of_the_results_file(call, paper, tmp_path):
    claims = [{"piece": "harsh", "stream": "label", "higher": "em", "lower": "none"}, {"best": "em"}]
    paper(claims=claims, discussion=["Because."])
    call("reproduce", "tiny-table", "--only", "harsh", "--workers", "1")
    page, results = page_and_results(tmp_path)
    systems = results["pieces"]["harsh"][0]["systems"]
    em, none = (
        [v for by in systems[s]["streams"]["label"]["clients"].values() for v in by.values()] for s in ("em", "none")
    )
    mean = 100 * statistics.fmean(a - b for a, b in zip(em, none, strict=True))
    first, second, third = results["claims"]  # nothing about the piece that was not run
    assert (second["stream"], third["stream"]) == ("label", "feature")
    assert first["difference"] == second["difference"] == pytest.approx(mean)
    assert (first["expected"], second["expected"]) == ("EM above No adaptation", "EM best (next: No adaptation)")
    assert (
        f"| harsh, label | EM above No adaptation | {first['verdict']} | {mean:+.2f} ± {first['error']:.2f} |" in page
    )
    order = ["EM above No adaptation", "## Discussion\n\n- Because.", "## Deviations", "## harsh", "## Remarks"]
    assert sorted(order, key=page.index) == order


def test_reproduce_takes_pieces_of_other_experiments(call, paper, tmp_path):
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(battery.tiny(name="other", systems=["none", "em"])))
    paper(pieces={"mild": [], "other": {"experiment": "other.yaml", "set": ["seeds=[3]"]}}, values=None)
    assert call("reproduce", "tiny-table", "--only", "other", "--workers", "1")[0] == 0
    assert page_and_results(tmp_path)[1]["pieces"]["other"][0]["name"].startswith("other-")


def test_reproduce_says_what_each_phase_sends(call, tmp_path):
    call("reproduce", "tiny-table", "--only", "mild", "--workers", "1")
    page, results = page_and_results(tmp_path)
    (phase,) = results["pieces"]["mild"][0]["phases"]
    assert (phase["name"], phase["rounds"], phase["down"] == phase["up"], phase["before"]) == ("fedavg", 2, True, 0)
    assert "- fedavg: 2 rounds, " in page


def test_reproduce_keeps_pieces_that_were_measured_elsewhere(call, tmp_path):
    """Another machine has another store; what it measured stays on the page, to the digit."""
    call("reproduce", "tiny-table", "--only", "mild", "--workers", "1", "--runs", "there")
    before, results = page_and_results(tmp_path)
    call("reproduce", "tiny-table", "--only", "harsh", "--workers", "1", "--runs", "here")
    page, after = page_and_results(tmp_path)
    assert list(after["pieces"]) == ["mild", "harsh"]
    assert after["pieces"]["mild"] == results["pieces"]["mild"]
    section = before[before.index("## mild") : before.index("## Remarks")]
    assert section in page
    assert "Not run yet" not in page


def test_reproduce_shows_pictures_where_the_table_asks_for_them(call, paper, tmp_path):
    call("reproduce", "tiny-table", "--only", "mild", "--workers", "1")
    assert not (tmp_path / "docs" / "figures").exists()
    atp = {"name": "atp", "phases": [{"name": "atp", "rounds": 1}], "adapter": "atp"}
    systems = ["none", "em", "fedamp+tent", atp]
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump({**EXPERIMENT, "systems": systems, "seeds": [0]}))
    paper(pictures=True)
    call("reproduce", "tiny-table", "--workers", "1")
    page, _ = page_and_results(tmp_path)
    drawn = sorted(path.name for path in (tmp_path / "docs" / "figures").iterdir())
    kinds = ("accuracy-label", "accuracy-feature", "matrices-feature", "weights-label")
    assert {f"tiny-table-{piece}-{kind}.svg" for piece in ("mild", "harsh") for kind in kinds} < set(drawn)
    assert "tiny-table-rates.svg" in drawn
    assert all(f"](../figures/{name})" in page for name in drawn)
    assert page.index("tiny-table-mild-accuracy") < page.index("## harsh") < page.index("tiny-table-harsh-accuracy")


def test_reproduce_keeps_pictures_of_more_rows_than_a_sitting_has(call, paper, tmp_path):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump({**EXPERIMENT, "systems": ["none", "em"], "seeds": [0, 1]}))
    paper(pictures=True)
    figure = tmp_path / "docs" / "figures" / "tiny-table-mild-accuracy-label.svg"

    def shown(*overrides):
        call("reproduce", "tiny-table", "--only", "mild", "--workers", "1", *overrides)
        return {system for system in ("none", "em") if f"system: {system}" in figure.read_text()}

    assert shown("seeds=[0]") == {"none", "em"}
    assert shown("seeds=[1]", "systems=[none]") == {"none", "em"}  # not of `none` alone
    figure.unlink()
    assert shown("seeds=[1]", "systems=[none]") == {"none"}  # better than none at all


def test_reproduce_joins_seeds_and_systems_of_several_sittings(call, tmp_path):
    """Every sitting on another machine: with a store and a cache of its own."""
    sittings = {"a": ["seeds=[1]"], "b": ["seeds=[0]", "systems=[none]"], "c": ["seeds=[0]"]}
    for runs, overrides in list(sittings.items())[:2]:
        call("reproduce", "tiny-table", *overrides, "--only", "mild", "--workers", "1", "--runs", runs)
    page, results = page_and_results(tmp_path)
    assert "Not run yet: mild (EM, seed 0), harsh.\n" in page
    assert results["lacking"] == ["mild (EM, seed 0)", "harsh"]
    assert "run with" not in page and not results["drifts"]  # a part of the table is no deviation
    first, second = results["pieces"]["mild"]
    both = [s["systems"]["none"]["streams"]["label"]["accuracy"][0] for s in (second, first)]
    spread = f"{100 * statistics.fmean(both):.2f} ± {100 * statistics.stdev(both):.2f}"
    assert cells(page, "No adaptation", 2)[2] == spread
    assert (
        "\n- `acclimate reproduce tiny-table 'seeds=[0]' 'systems=[none]' --only mild`: seed 0 of No adaptation; run "
        in page
    )
    assert "\n- `acclimate reproduce tiny-table 'seeds=[1]' --only mild`: seed 1; run " in page
    call("reproduce", "tiny-table", *sittings["c"], "--only", "mild", "--workers", "1", "--runs", "c")
    page, results = page_and_results(tmp_path)
    assert "Not run yet: harsh.\n" in page
    assert [list(s["systems"]) for s in results["pieces"]["mild"]] == [["none", "em"], ["none", "em"]]
    whole = tmp_path / "whole"  # the same as in one sitting
    call("reproduce", "tiny-table", "--only", "mild", "--workers", "1", "--runs", "d", "--docs", str(whole))
    at_once = (whole / "reproduction" / "tiny-table.md").read_text()
    for row in ("No adaptation", "EM"):
        assert cells(at_once, row) == cells(page, row)
        assert cells(at_once, row, 2) == cells(page, row, 2)


def test_a_system_with_two_rows_is_named_once_and_nobody_where_all_are_there(monkeypatch):
    monkeypatch.setattr(markdown, "_made", lambda sitting: "made")
    rows = {"em (best validation)": "EM", "tent": "Tent", "em": "EM, last round"}
    of = {"em": {"of": "em", "seeds": [0]}, "em (best validation)": {"of": "em", "seeds": [0]}}
    tent = {"tent": {"of": "tent", "seeds": [0]}}
    part = SimpleNamespace(
        piece="mild",
        paper=SimpleNamespace(name="two", rows=rows),
        systems={**of, **tent},
        sittings=[{"systems": of}, {"systems": {**of, **tent}}],
    )
    some, everybody, _ = markdown._sittings(part)
    assert some == "- `acclimate reproduce two --only mild`: seed 0 of EM; made."
    assert everybody == "- `acclimate reproduce two --only mild`: seed 0; made."


def test_reproduce_runs_only_the_rest(call, tmp_path):
    """Seed by seed, and of each seed the systems that the results file lacks; on whatever machine."""
    call("reproduce", "tiny-table", "seeds=[0]", "systems=[none]", "--only", "mild", "--workers", "1", "--runs", "a")
    code, _, error = call("reproduce", "tiny-table", "--rest", "--only", "mild", "--workers", "1", "--runs", "b")
    assert code == 0
    said = [line for line in error.splitlines() if line.startswith("tiny-table, piece")]
    assert said == [
        "tiny-table, piece 1 of 2: mild seeds=[0] systems=[em]",
        "tiny-table, piece 2 of 2: mild seeds=[1] systems=[none, em]",
    ]
    page, results = page_and_results(tmp_path)
    assert results["lacking"] == ["harsh"]
    assert len(cells(page, "EM", 2)[2].split(" ± ")) == 2  # two seeds
    _, _, error = call("reproduce", "tiny-table", "--rest", "--only", "mild", "--workers", "1", "--runs", "c")
    assert "piece 1" not in error  # nothing is left
    assert page_and_results(tmp_path)[0] == page


def test_reproduce_of_the_rest_measures_again_what_was_measured_otherwise(call, tmp_path):
    call("reproduce", "tiny-table", "phases.0.rounds=1", "--only", "mild", "--workers", "1")
    _, _, error = call("reproduce", "tiny-table", "--rest", "--only", "mild", "--workers", "1")
    assert "tiny-table, piece 1 of 1: mild\n" in error
    assert "run with" not in page_and_results(tmp_path)[0]


def test_reproduce_of_systems_without_a_row_writes_a_page_that_lacks_them_all(call, paper, tmp_path):
    paper(rows={"em": "EM"}, values=None)
    assert call("reproduce", "tiny-table", "systems=[none]", "--only", "mild", "--workers", "1")[0] == 0
    assert page_and_results(tmp_path)[1]["lacking"] == ["mild", "harsh"]


def test_reproduce_of_the_rest_takes_no_overrides(call):
    code, _, error = call("reproduce", "tiny-table", "seeds=[0]", "--rest")
    assert code == 2
    assert "--rest chooses rows and seeds by itself" in error


def test_reproduce_of_a_system_that_only_one_piece_has(call, tmp_path, paper):
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(battery.tiny(name="other", systems=["em", "tent"])))
    paper(
        pieces={"mild": [], "other": {"experiment": "other.yaml"}},
        rows={"em": "EM", "tent": "Tent"},
        values=None,
    )
    assert call("reproduce", "tiny-table", "systems=[tent]", "--only", "other", "--workers", "1")[0] == 0
    assert page_and_results(tmp_path)[1]["lacking"] == ["mild", "other (EM)"]
