from pathlib import Path

import pytest

from acclimate.experiment import remembered as module
from acclimate.experiment.remembered import remembered


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCLIMATE_CACHE", str(tmp_path / "cache"))


def test_an_answer_is_worked_out_once_per_question():
    asked = []

    def answer():
        asked.append(1)
        return {"n": len(asked)}

    assert remembered(["a", 1], answer) == remembered(["a", 1], answer) == {"n": 1}
    assert remembered(["a", 2], answer) == {"n": 2}


def test_other_code_is_asked_again_and_its_answers_go(tmp_path, monkeypatch):
    assert remembered("q", lambda: "old") == "old"
    monkeypatch.setattr(module, "_files", lambda: [("edited.py", 1, 2)])
    assert remembered("q", lambda: "new") == "new"
    assert len(list((tmp_path / "cache" / "answers").iterdir())) == 1


def test_every_file_of_the_package_counts():
    names = {Path(name).name for name, _, _ in module._files()}
    assert {"tent.py", "remembered.py", "quickstart.yaml", "atp-table5.yaml"} <= names


def test_an_error_is_not_remembered():
    def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        remembered("q", fail)
    assert remembered("q", lambda: 1) == 1


def test_damaged_answers_are_worked_out_again(tmp_path):
    remembered("q", lambda: 1)
    (path,) = (tmp_path / "cache" / "answers").glob("*/*.json")
    path.write_bytes(b"{")
    assert remembered("q", lambda: 2) == 2
    assert remembered("q", lambda: 3) == 2


def test_a_cache_that_cannot_be_written_to_only_costs_time(tmp_path):
    (tmp_path / "cache").write_text("a file where a folder should be")
    assert remembered("q", lambda: 1) == 1
