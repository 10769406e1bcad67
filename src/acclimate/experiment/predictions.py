"""What was predicted of images that have no label, as CSV files in the folder of a run."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path

from acclimate import trees
from acclimate.data.dataset import Dataset
from acclimate.data.folders import write_whole
from acclimate.experiment.baselines import with_baselines
from acclimate.experiment.experiment import Experiment
from acclimate.scenarios.population import Population
from acclimate.store.database import Store

UNLABELLED = "unlabelled"  # a note of a seed
COLUMNS = ("path", "client", "class", "probability", "entropy", "intervened")


def has_unlabelled(people: Population) -> bool:
    """Whether a test client meets images without a label."""
    held = [held for stream in people.streams for _, held in stream.segments]
    return any(bool((people.pools[one.pool][1][one.rows] < 0).any()) for one in held)


def write_predictions(store: Store, run: int, experiment: Experiment, seed: int, folder: Path) -> list[Path]:
    """One file for each system, `<folder>/predictions/<system>-seed-<seed>.csv`; those that are there already stay."""
    scenario = (experiment.test_scenario or experiment.scenario).made
    if not store.notes(run, UNLABELLED).get(("", seed)):
        return []
    dataset, (_, people) = scenario.plan(scenario.seed_of(seed)).dataset, experiment.populations(seed)
    written = []
    for system in with_baselines(experiment.systems)[0] if "path" in dataset.columns else ():
        for name in (system.name, f"{system.name} (best validation)"):
            plain = re.sub(r"[^\w.+-]+", "_", name)
            path = folder / "predictions" / f"{plain}-seed-{seed}.csv"
            rows = list(_rows(store, (run, name, seed), people, dataset, system.test.batch_size))
            if rows and not path.exists():
                text = io.StringIO(newline="")
                csv.writer(text).writerows([COLUMNS, *rows])
                content = text.getvalue().encode()
                write_whole(path, lambda file, content=content: file.write(content))  # type: ignore[misc]
                written.append(path)
    return written


def _rows(
    store: Store, unit: tuple[int, str, int], people: Population, dataset: Dataset, batch_size: int | str
) -> Iterator[list[str]]:
    slots = {(stream.client, stream.name): stream.slots(batch_size) for stream in people.streams}
    classes, clients = dataset.names["label"], dataset.names["client"]
    for client, stream, slot, blob in store.select(
        "SELECT client, stream, slot, content FROM figure WHERE run = ? AND system = ? AND seed = ? AND phase = 'test' "
        "AND client >= 0 ORDER BY client, stream, slot",
        *unit,
    ):
        drawn = trees.load(blob)
        held = [row for part in slots[client, stream][slot].parts for row in part.rows.tolist()]
        said = "yes" if bool(drawn.get("stepped_in", False)) else "no"
        for at, label, share, h in zip(
            *(
                drawn[key].tolist() if key in drawn else []
                for key in ("asked", "answers", "probabilities", "entropies")
            ),
            strict=True,
        ):
            path = str(dataset.columns["path"][held[at]])
            yield [path, clients[client], classes[label], f"{share:.6f}", f"{h:.6f}", said]
