"""What was predicted of images that have no label, as CSV files in the folder of a run."""

from __future__ import annotations

import csv
import io
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from acclimate.data.dataset import Dataset
from acclimate.data.folders import write_whole
from acclimate.experiment.baselines import with_baselines
from acclimate.experiment.experiment import Experiment
from acclimate.scenarios.population import Population, Slot
from acclimate.store.records import Entry
from acclimate.store.run import Run

UNLABELLED = "unlabelled"  # a note of a seed
UNSAFE = r"[^\w.+-]+"  # in the name of a file
ANSWERS = ("asked", "answers", "probabilities", "entropies")  # what a figure has of images without a label
COLUMNS = ("path", "client", "class", "probability", "entropy", "intervened")


def has_unlabelled(people: Population) -> bool:
    """Whether a test client meets images without a label."""
    held = [held for stream in people.streams for _, held in stream.segments]
    return any(bool((people.pools[one.pool][1][one.rows] < 0).any()) for one in held)


def write_predictions(run: Run, experiment: Experiment, seed: int, folder: Path) -> list[Path]:
    """One file for each system, `<folder>/predictions/<system>-seed-<seed>.csv`; those that are there already stay."""
    scenario = (experiment.test_scenario or experiment.scenario).made
    if not run.noted(UNLABELLED).get(("", seed)):
        return []
    dataset, (_, people) = scenario.plan(scenario.seed_of(seed)).dataset, experiment.populations(seed)
    if "path" not in dataset.columns:
        return []
    sizes = {system.name: system.test.batch_size for system in with_baselines(experiment.systems)[0]}
    slots = {
        (stream.client, stream.name, size): stream.slots(size)
        for stream in people.streams
        for size in set(sizes.values())
    }
    rows: dict[Entry, list[list[str]]] = defaultdict(list)
    for stream in run.streams:
        for drawn in run.figures(stream, seed=seed):
            met = slots.get((drawn.client, stream, sizes[drawn.entry.system]))
            if met is not None:  # else a source client's validation part, which has labels
                client = dataset.names["client"][drawn.client]
                rows[drawn.entry] += predicted(drawn.content, client, met[drawn.slot], dataset)
    written = []
    for entry, lines in rows.items():
        path = folder / "predictions" / f"{re.sub(UNSAFE, '_', entry.title)}-seed-{seed}.csv"
        if lines and not path.exists():
            text = io.StringIO(newline="")
            csv.writer(text).writerows([COLUMNS, *lines])
            content = text.getvalue().encode()
            write_whole(path, lambda file, content=content: file.write(content))  # type: ignore[misc]
            written.append(path)
    return written


def predicted(values: Mapping[str, Any], client: str, met: Slot, dataset: Dataset) -> Iterator[list[str]]:
    """The predictions of one batch, where it has some: lines of `COLUMNS`."""
    classes = dataset.names["label"]
    held = [row for part in met.parts for row in part.rows.tolist()]
    said = "yes" if bool(values.get("stepped_in", False)) else "no"
    asked = (values[key].tolist() if key in values else [] for key in ANSWERS)
    for at, label, share, h in zip(*asked, strict=True):
        path = str(dataset.columns["path"][held[at]])
        yield [path, client, classes[label], f"{share:.6f}", f"{h:.6f}", said]
