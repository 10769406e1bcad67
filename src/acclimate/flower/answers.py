"""Predictions of images without labels: they stay on the node, as the same files that a run on one machine writes."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from acclimate import trees
from acclimate.data.dataset import Dataset
from acclimate.data.folders import write_whole
from acclimate.engine.messages import Figure
from acclimate.experiment.predictions import ANSWERS, COLUMNS, UNSAFE, predicted
from acclimate.flower.kept import Kept
from acclimate.flower.places import OnNodes
from acclimate.scenarios.population import Slot


@dataclass(frozen=True)
class Answers:
    """Predictions in a test of one system."""

    experiment: OnNodes
    seed: int
    system: str
    name: str  # of the node

    @property
    def file(self) -> str:
        """The name of the file."""
        return f"{re.sub(UNSAFE, '_', self.system)}-seed-{self.seed}.csv"

    @cached_property
    def dataset(self) -> Dataset:
        """Where the paths of images are."""
        scenario = (self.experiment.test_scenario or self.experiment.scenario).made
        found: Dataset = scenario.plan(scenario.seed_of(self.seed)).dataset
        return found

    def taken(self, figures: Sequence[Figure], slots: Sequence[Slot]) -> tuple[list[Figure], dict[int, str]]:
        """Figures without predictions, and the lines of a file by slot."""
        left, lines = [], {}
        for figure in figures:
            values = trees.load(figure.values)
            if "asked" in values and "path" in self.dataset.columns:
                text = io.StringIO(newline="")
                csv.writer(text).writerows(predicted(values, self._client(figure), slots[figure.slot], self.dataset))
                lines[figure.slot] = text.getvalue()
            rest = {key: value for key, value in values.items() if key not in ANSWERS}
            left += [figure._replace(values=trees.dump(rest))] if rest else []
        return left, lines

    def write(self, kept: Kept) -> None:
        """The file, with all predictions so far."""
        content = ",".join(COLUMNS) + "\r\n" + "".join(kept.predictions(self.file))
        write_whole(kept.path.parent / "predictions" / self.file, lambda file: file.write(content.encode()))

    def _client(self, figure: Figure) -> str:
        names = self.dataset.names.get("client")
        return names[figure.client] if names else self.name
