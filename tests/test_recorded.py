"""Not a bit changes: recorded experiments give what they gave, on the machine and versions that the record names.

Elsewhere two fresh runs are compared, the second with two workers.
"""

import json

import pytest

from recorded.record import FILE, NAMES, machine, measured

# The whole quickstart is run by test_quickstart.py too.
SOME = [pytest.param(name, marks=pytest.mark.slow) if name == "quickstart" else name for name in NAMES]


@pytest.mark.parametrize("name", SOME)
def test_recorded_experiment_gives_the_same_bits(name, two_workers, tmp_path, monkeypatch):
    monkeypatch.setenv("ACCLIMATE_CACHE", str(tmp_path / "cache"))
    record = json.loads(FILE.read_text(encoding="utf-8"))
    found = measured(name, two_workers)
    if record["machine"] != machine():
        monkeypatch.setenv("ACCLIMATE_CACHE", str(tmp_path / "other"))
        assert found == measured(name)
    else:
        assert found["accuracy"] == record[name]["accuracy"]
        assert found == record[name]
