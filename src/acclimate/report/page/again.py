"""How to make a run again: the exact configuration, seeds, versions, data, and the one command."""

from __future__ import annotations

import yaml

from acclimate.report.page.html import Html, tag
from acclimate.report.page.summary import facts
from acclimate.report.pictures.picture import some
from acclimate.store.run import Run


def again(run: Run) -> list[Html]:
    """All that decides the numbers."""
    worked = "" if run.worked is None else f", {run.worked / 60:.1f} minutes of work (excluding cached work)"
    seeds, _, which = some("seed", run.seeds).partition(" ")
    pairs = [
        ("run", run.name),
        ("time", f"{run.started} to {run.finished or 'not finished'}{worked}"),
        (seeds, which),
        ("versions", ", ".join(f"{name} {version}" for name, version in run.versions.items())),
        *((f"data {name}", f"checksum {digest}") for name, digest in run.checksums().items()),
    ]
    plain = yaml.safe_dump(run.experiment, sort_keys=False, allow_unicode=True)
    return [
        tag("p", "Save the configuration below as experiment.yaml (a copy is in the run's own folder), then:"),
        tag("pre", tag("code", "acclimate run experiment.yaml"), class_="command"),
        facts(pairs),
        tag("details", tag("summary", "The configuration, every option written out"), tag("pre", tag("code", plain))),
    ]
