"""The page and what it is made of: what is said, what is escaped, and tables for papers."""

import csv
import io
import json
import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from acclimate.engine.evaluate import Commit, Score
from acclimate.report.export import as_csv, as_latex, escaped
from acclimate.report.measured import measured
from acclimate.report.page import page as page_module
from acclimate.report.page.compare import _paired
from acclimate.report.page.html import data, joined, script, tag
from acclimate.report.page.page import page
from acclimate.report.significance import paired
from acclimate.report.standings import sentence, standings
from acclimate.report.table import table
from acclimate.report.text import NOT_TESTED, text
from acclimate.store.database import Unit
from toy_run import toy

EVIL = "<script>alert(1)</script>"


class Words(HTMLParser):
    """The texts of a page outside scripts and styles, and the tags it has."""

    def __init__(self, content):
        super().__init__()
        self.texts, self.tags, self.inside = [], [], []
        self.feed(content)

    def handle_starttag(self, name, attributes):
        self.tags.append(name)
        self.inside += [name] if name in ("script", "style") else []

    def handle_endtag(self, name):
        if self.inside and self.inside[-1] == name:
            self.inside.pop()

    def handle_data(self, text):
        self.texts += [] if self.inside else [text]

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def test_paired_differences_have_the_interval_of_students_t():
    """Differences 10, 20, 30: mean 20, s.e. 10 / √3, t(2) = 4.302653 at 97.5 %."""
    a = {(0, 1): 0.6, (0, 2): 0.7, (1, 1): 0.8, (9, 9): 0.0}
    found = paired(a, {(0, 1): 0.5, (0, 2): 0.5, (1, 1): 0.5})
    assert found.mean == pytest.approx(20)
    assert found.high - found.mean == pytest.approx(4.302653 * 10 / math.sqrt(3), rel=1e-6)
    assert (found.pairs, found.sure) == (3, False)
    assert paired({(0, 1): 0.5}, {(0, 1): 0.5}) is None


def test_equal_systems_are_within_noise():
    same = {(0, client): 0.5 for client in range(4)}
    assert not paired(same, same).sure


COUNTS = {
    "s": {
        "none": {client: (50 + client % 2, 100) for client in range(8)},
        "tent": {client: (70 + client % 2, 100) for client in range(8)},
    }
}


@pytest.fixture
def opened(tmp_path):
    store, run = toy(tmp_path, COUNTS, groups={})
    store.note(run.id, "near", -1, "baseline", "none")
    scores = [
        Score(client, "s", 0, "fog", {"correct": 70.0 + (client + 1) % 2, "count": 100.0, "seconds": 0.1})
        for client in range(8)
    ]
    store.commit(Unit(run.id, "near", 0), Commit(scores))
    yield store, store.runs()[0]
    store.close()


def test_standings_mark_the_best_and_who_is_not_surely_worse(opened):
    _, run = opened
    places = {place.line.title: place for place in standings(run, table(run), "s")}
    assert [place.best for place in places.values()].count(True) == 1
    assert places["tent"].within_noise or places["near"].within_noise
    assert not places["none"].within_noise
    assert places["tent"].from_none.mean == pytest.approx(20)
    said = sentence(list(places.values()))
    assert "is best with 70.5 %, 20.0 points above no adaptation. Not surely worse: " in said
    assert said.endswith("Nobody was harmed.")


def test_latex_has_the_best_bold_and_what_is_near_underlined(opened):
    _, run = opened
    lines = as_latex(run).splitlines()
    assert lines[2:4] == [r"\begin{tabular}{lrrr}", r"\toprule"]
    assert sum(r"\textbf{70.5}" in line for line in lines) == 1
    assert sum(r"\underline{70.5}" in line for line in lines) == 1
    assert r"none & 50.5 & 50.0 & 0\,\% \\" in lines
    assert escaped("50 % of a_b & {c} \\") == r"50 \% of a\_b \& \{c\} \textbackslash{}"


def test_csv_and_records_have_one_line_for_each_system_stream_and_seed(opened):
    _, run = opened
    rows = list(csv.DictReader(io.StringIO(as_csv([run]))))
    assert [(row["run"], row["system"], row["stream"], row["seed"]) for row in rows] == [
        ("toy-0", name, "s", "0") for name in ("near", "none", "tent")
    ]
    assert [record["accuracy"] for record in run.table()] == [0.705, 0.505, 0.705]


def test_html_escapes_whatever_is_no_tag():
    assert joined("a < b", None, [tag("i", EVIL), "&"]) == ("a &lt; b<i>&lt;script&gt;alert(1)&lt;/script&gt;</i>&amp;")
    assert tag("td", 'x"', data_value="0", tabindex=0, title='"><b>') == (
        '<td data-value="0" tabindex="0" title="&quot;&gt;&lt;b&gt;">x&quot;</td>'
    )
    assert "<" not in data("x", {EVIL: EVIL}).removeprefix("<script").removesuffix("</script>").partition(">")[2]
    with pytest.raises(ValueError, match="would end early"):
        script("let x = '</script>'")


def test_page_of_a_run_with_a_dangerous_name_is_text(tmp_path):
    store, run = toy(
        tmp_path, {"s": {"none": {0: (1, 2), 1: (1, 2)}, "tent": {0: (1, 2), 1: (2, 2)}}}, groups={0: EVIL}
    )
    for name in (EVIL, "`${alert(1)}`"):
        store.note(run.id, name, -1, "baseline", "none")
        store.note(run.id, name, -1, "own", [EVIL])
        scores = [
            Score(c, "s", t, EVIL, {"correct": 1.0, "count": 2.0, "seconds": 0.1}) for c in (0, 1) for t in (0, 1)
        ]
        store.commit(Unit(run.id, name, 0), Commit(scores))
    content = page([store.runs()[0]])
    read = Words(content)
    assert EVIL in read.text
    assert read.tags.count("script") == content.count("<script") == 3  # data, Vega and ours
    assert EVIL in json.dumps(json.loads(re.search(r'id="pictures">(.*?)</script>', content)[1])["specs"])
    store.close()


def test_page_names_no_address_but_those_of_standards(opened):
    content = page([opened[1]])
    assert set(re.findall(r"https?://[\w./-]+", content)) == set()
    assert "default-src 'none'" in content.replace("&#x27;", "'")


def test_page_has_all_sections_and_the_command(opened):
    read = Words(page([opened[1]]))
    for words in ("Summary", "Who was helped and who was harmed", "How to make it again", "What does it cost?"):
        assert words in read.text
    assert "acclimate run experiment.yaml" in read.text
    assert "paired Student t-test" in read.text
    assert "★ best" in read.text and "≈ best" in read.text


def test_run_without_results_says_that_nothing_is_tested_yet(tmp_path):
    """Found in a run that was still training: it said that nobody had labels, above empty tables."""
    store, first = toy(tmp_path)
    store.note(store.run("begun", first.experiment, {"torch": "2"}), "", -1, "streams", ["original", "corrupted"])
    begun = store.runs()[-1]
    content = page([begun])
    assert NOT_TESTED in Words(content).text
    assert "labels, so nothing" not in content and "What does it cost?" not in content
    assert NOT_TESTED in text(table(begun), begun)
    store.close()


def test_page_of_two_runs_says_what_differs_and_pairs_their_clients(tmp_path):
    store, first = toy(tmp_path, COUNTS, groups={})
    other = store.run("toy-1", {**first.experiment, "test": {"reset": "batch", "batch_size": 10}}, {"torch": "2"})
    store.note(other, "", -1, "streams", ["s"])
    for system, more in (("none", 0), ("tent", 10)):
        store.note(other, system, -1, "baseline", "none")
        scores = [
            Score(client, "s", 0, "snow 5", {"correct": correct + more, "count": float(n), "seconds": 0.1})
            for client, (correct, n) in COUNTS["s"][system].items()
        ]
        store.commit(Unit(other, system, 0), Commit(scores))
    text = Words(page(store.runs())).text
    assert "Side by side" in text
    assert "test.reset never batch" in text
    assert "tent s test.reset=batch − test.reset=never +10.00 [+10.00, +10.00] 8 surely different" in text
    store.close()


@pytest.fixture(autouse=True)
def _no_bundle(monkeypatch):
    """Nobody runs the scripts here."""
    monkeypatch.setattr(page_module, "vega", lambda: "/* Vega */")


def test_where_nothing_can_be_compared_nobody_is_surely_worse(tmp_path):
    """One client has no spread to judge by."""
    counts = {"test": {"none": {0: (5, 10)}, "tent": {0: (5, 10)}}}
    store, run = toy(tmp_path, counts, groups={})
    said = sentence(standings(run, table(run), "test"))
    store.close()
    assert "surely" not in said


def test_what_is_measured_so_far_has_the_seeds_that_it_has(tmp_path):
    """Of a run that goes on, one system may be a seed ahead of another."""
    store, run = toy(tmp_path, seeds=(0, 1))
    store.forget(Unit(run.id, "tent", 1))
    found = measured(store.runs()[0])["systems"]
    store.close()
    assert (found["none"]["seeds"], found["tent"]["seeds"]) == ([0, 1], [0])
    assert len(found["tent"]["streams"]["original"]["accuracy"]) == 1


def test_runs_whose_test_clients_are_others_are_not_paired(tmp_path):
    store, run = toy(tmp_path)
    tests = [run.experiment["test"], {**run.experiment["test"], "scenario": {"name": "elsewhere"}}]
    runs = [replace(run, experiment={**run.experiment, "test": test}) for test in tests]
    same, other = (str(_paired([run, one], ["a", "b"])) for one in runs)
    store.close()
    assert "No run shares its clients" not in same and "No run shares its clients" in other
