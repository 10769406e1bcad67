import json

import pytest

from acclimate.report.overview import with_overview


@pytest.fixture
def results(tmp_path):
    def write(name, title, of, pieces, verdicts):
        claims = [
            {"piece": "mild", "expected": f"claim {i}", "verdict": verdict, "difference": -2.437, "error": 0.15}
            for i, verdict in enumerate(verdicts)
        ]
        content = {"table": name, "title": title, "of": of, "pieces": dict.fromkeys(pieces), "claims": claims}
        (tmp_path / f"{name}.json").write_text(json.dumps(content))

    write("b-table", "Second, (b)", 3, ["mild"], ["holds", "holds: within 2 s.e.", "contradicted"])
    write("a-table", "First", 1, ["mild"], ["within noise"])
    return tmp_path


PAGE = "# Head\n\n<!-- b-table -->\nbbb\n<!-- /b-table -->\n\n<!-- a-table -->\naaa\n<!-- /a-table -->\n"


def test_overview_counts_verdicts_in_the_order_of_the_page(results):
    page = with_overview(PAGE, results)
    rows = [line for line in page.splitlines() if line.startswith("| [")]
    assert rows == [
        "| [Second, (b)](#second-b-b-table) | 1 of 3 | 2 | 0 | 1 |",
        "| [First](#first-a-table) | 1 of 1 | 0 | 1 | 0 |",
    ]
    assert "- `b-table`, mild: claim 2; -2.44 ± 0.15\n" in page
    assert page.index("# Head") < page.index("| [") < page.index("bbb") < page.index("aaa")


def test_overview_is_replaced_and_leaves_the_rest_as_it_is(results):
    once = with_overview(PAGE, results)
    assert with_overview(once, results) == once
    (results / "a-table.json").unlink()
    twice = with_overview(once, results)
    assert "[First]" not in twice
    assert twice.endswith(PAGE.removeprefix("# Head\n\n"))


def test_overview_leaves_out_results_of_code_that_knew_no_overview(results):
    (results / "a-table.json").write_text(json.dumps({"table": "a-table", "claims": [], "pieces": {}}))
    assert with_overview(PAGE, results).count("| [") == 1


def test_overview_says_in_which_stream_something_is_contradicted(results):
    claim = {"piece": "mild", "expected": "A best", "verdict": "contradicted", "difference": -1.0, "error": 0.1}
    content = {"table": "a-table", "title": "First", "of": 1, "pieces": {"mild": None}}
    content["claims"] = [{**claim, "stream": "label", "group": "svhn"}, claim]  # and as earlier code wrote it
    (results / "a-table.json").write_text(json.dumps(content))
    page = with_overview(PAGE, results)
    assert "- `a-table`, mild, label, svhn: A best; -1.00 ± 0.10\n" in page
    assert "- `a-table`, mild: A best; -1.00 ± 0.10\n" in page
