"""What `acclimate flower run` says of a run that fails, or does not begin; Flower's own command stands aside."""

import os
import sys

import pytest

from acclimate.flower import deploy

FLWR = """#!{python}
import sys, time
if sys.argv[1] == "run":
    print("Successfully started run 1234567", flush=True)
    time.sleep({seconds})
else:
    print('{{"runs": [{{"run-id": "1234567", "status": "{status}"}}]}}')
"""


def submit(monkeypatch, folder, status, seconds=0.0):
    program = folder / "flwr"
    program.write_text(FLWR.format(python=sys.executable, status=status, seconds=seconds))
    program.chmod(0o755)
    monkeypatch.setattr(deploy, "program", lambda name: str(program))
    deploy.submit(folder, None, [], os.environ)


def test_a_run_that_has_not_begun_is_worth_a_word(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(deploy, "START_SECONDS", 0.1)
    with pytest.raises(deploy.FlowerFailed, match="ended as 'pending'"):
        submit(monkeypatch, tmp_path, "pending", seconds=3)
    printed = capsys.readouterr().out
    assert "has not begun after 0.1 s" in printed
    assert "a certificate that does not name 127.0.0.1" in printed


def test_a_run_that_goes_on_is_not(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(deploy, "START_SECONDS", 0.1)
    submit(monkeypatch, tmp_path, deploy.COMPLETED, seconds=2)
    assert "has not begun" not in capsys.readouterr().out


def test_a_run_that_failed_is_an_error(monkeypatch, tmp_path):
    with pytest.raises(deploy.FlowerFailed, match="ended as 'finished:failed'"):
        submit(monkeypatch, tmp_path, "finished:failed")
