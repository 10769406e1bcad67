"""Sentences with numbers: filled in, held back where nothing was measured, and turned where it says otherwise."""

import json
from pathlib import Path

import pytest
import yaml

from acclimate.errors import ConfigError
from acclimate.experiment.published import published
from acclimate.report.findings import findings, places, read

RESULTS = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture
def page(tmp_path):
    """Writes sentences about atp-table5's label shift, with these accuracies of three clients, and gives the page."""
    clients = {"none": [0.5, 0.6, 0.7], "tent": [0.3, 0.4, 0.4], "em": [0.6, 0.7, 0.9]}
    systems = {
        name: {"streams": {"test": {"accuracy": [sum(of) / 3], "clients": {"0": dict(enumerate(of))}}}}
        for name, of in clients.items()
    }

    def write(*sentences, measured=True, **more):
        pieces = {"label": {"seeds": [0], "groups": {}, "systems": systems}} if measured else {}
        (tmp_path / "atp-table5.json").write_text(json.dumps({"pieces": pieces, **more}))
        (tmp_path / "said.yaml").write_text(
            yaml.safe_dump([{"about": "A", "of": "atp-table5", **s} for s in sentences])
        )
        return findings(tmp_path, tmp_path / "said.yaml")

    return write


def test_a_sentence_gets_accuracies_differences_and_the_papers_values(page):
    """Tent − none: −20, −20, −30 points: the mean is −23.3, the standard error 5.77 / √3 = 3.3."""
    text = page({"says": "{label/tent}, {label/tent - label/none}, {paper label/none}"})
    assert "- 36.7, −23.3 ± 3.3, 69.3 ([atp-table5](reproduction/atp-table5.md))" in text


def test_a_sentence_is_shown_when_what_it_rests_on_holds(page):
    text = page(
        {"says": "yes one", "when": "label/none > label/tent"},
        {"says": "not two", "when": "label/tent > label/none"},
        {"says": "yes four", "when": "label/em >= label/none"},
        {"says": "not five", "when": "label/tent >= label/none"},
        {"says": "not three", "when": ["label/none > label/tent", "label/em ~ label/none"], "otherwise": "yes three"},
    )
    assert all(f"yes {n}" in text for n in ("one", "three", "four")) and "not" not in text.partition("## A")[2]


def test_a_sentence_about_what_was_not_run_waits(page):
    text = page({"says": "{label/shot}"}, {"says": "{hybrid/none}"}, {"says": "{atp-table1:label/none}"})
    assert "## A" not in text
    assert text.endswith("Sentences that wait for a run, by table: atp-table5 (3).\n")


def test_a_sentence_may_wait_until_its_table_is_measured_as_it_asks_for_today(page):
    assert "yes" in page({"says": "yes {label/none}", "fresh": True}, drifts=[])
    assert "yes" not in page({"says": "yes {label/none}", "fresh": True}, drifts=["label: measured otherwise."])


def test_a_misspelt_key_of_a_sentence_is_told(page):
    with pytest.raises(ConfigError, match=r"0\.sayz: unknown key"):
        page({"says": "x", "sayz": "y"})


def test_every_sentence_speaks_of_pieces_and_systems_that_there_are():
    tables = {name: published(name) for name in {place.table for one in read() for place in places(one)}}
    for one in read():
        for place in places(one):
            assert place.table in one.of
            assert place.piece in tables[place.table].pieces, place
            assert place.system in tables[place.table].rows, place


def test_the_page_of_findings_is_as_the_results_say():
    assert (RESULTS.parent / "findings.md").read_text(encoding="utf-8") == findings(RESULTS)
