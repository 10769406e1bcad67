import json

import pytest
import yaml

from acclimate.experiment import catalog
from acclimate.experiment.published import PAPERS, outlines
from acclimate.report.overview import overview


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Writes a published table and, if pieces of it were run, its results file."""
    monkeypatch.setattr(catalog, "PUBLISHED", tmp_path)

    def write(name, title, pieces, run=(), verdicts=(), gaps=(), drifts=(), **more):
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump({"title": title, "pieces": {p: [] for p in pieces}}))
        claims = [
            {"piece": "mild", "expected": f"claim {i}", "verdict": verdict, "difference": -2.437, "error": 0.15, **more}
            for i, verdict in enumerate(verdicts)
        ]
        beside = [{"paper": 50.0, "ours": 50.0 + gap} for gap in gaps]
        sitting, lacking = {"systems": {"em": {"seeds": [1, 0]}}}, [piece for piece in pieces if piece not in run]
        content = {"lacking": lacking, "table": name, "pieces": {piece: [sitting] for piece in run}, "claims": claims}
        if run:
            (tmp_path / f"{name}.json").write_text(json.dumps({**content, "gaps": beside, "drifts": drifts}))
        return tmp_path

    return write


def test_overview_counts_verdicts_by_paper(results):
    results("tsa-b", "Second", ["mild", "harsh"], ["mild"], ["holds", "holds: within 2 s.e.", "contradicted"])
    results("tsa-c", "Third", ["all"])
    folder = results("atp-a", "First", ["mild"], ["mild"], ["within noise"], gaps=[-3.0, 1.0, 2.0])
    page = overview(folder)
    assert "| [Second](tsa-b.md) | 1 of 2 | 0, 1 | – | 2 | 0 | 1 |\n" in page
    assert "| [First](atp-a.md) | 1 of 1 | 0, 1 | 2.0 | 0 | 1 | 0 |\n" in page  # the median of 3, 1 and 2
    assert "| ATP (Bao et al., NeurIPS 2023) | 1 of 1 | 0 | 1 | 0 |\n" in page
    assert "| TSA (Zhang et al., KDD 2024) | 1 of 2 | 2 | 0 | 1 |\n" in page
    assert "Expectations that hold: 2 of 4; within noise: 1; contradicted: 1.\n" in page
    assert page.index("## ATP") < page.index("[First]") < page.index("## TSA") < page.index("[Second]")


def test_overview_names_what_is_contradicted_noise_and_not_run(results):
    results("tsa-c", "Third", ["all"])
    folder = results("tsa-b", "Second", ["mild", "harsh"], ["mild"], ["within noise", "contradicted"], stream="label")
    page = overview(folder)
    for title, claim in (("Contradicted", 1), ("Within noise", 0)):
        line = f"- [tsa-b](tsa-b.md), mild, label: claim {claim}; -2.44 ± 0.15\n"
        assert f"{title} (difference in points ± its standard error):\n\n{line}" in page
    assert "Not run: tsa-b (harsh); tsa-c (Third).\n" in page


def test_overview_names_tables_that_were_measured_otherwise(results):
    results("tsa-b", "Second", ["mild"], ["mild"])
    assert "Measured otherwise" not in overview(results("tsa-c", "Third", ["mild"], ["mild"]))
    page = overview(results("tsa-b", "Second", ["mild"], ["mild"], drifts=["mild: run with `seeds=[1]`."]))
    assert "Measured otherwise than the table asks for today: [tsa-b](tsa-b.md); see their deviations.\n" in page


def test_overview_of_nothing_says_so(results):
    page = overview(results("mine", "My own", ["all"]))
    assert "## Other tables\n\nNot run: mine (My own).\n" in page
    assert "Expectations that hold: 0 of 0" in page


def test_every_shipped_table_is_of_a_paper():
    ours = ("hostile", "private")
    assert {outline.paper for outline in outlines() if outline.name not in ours} == set(PAPERS.values())
