"""Classes for pictures of features: from the images a run holds itself, so that nothing is asked of a device."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from acclimate import trees
from acclimate.engine.evaluate import Commit
from acclimate.scenarios.population import Population, Stream


def with_classes(commit: Commit, people: Population, streams: Iterable[Stream], batch_size: int | str) -> Commit:
    """The same, with `classes` [images] beside the `features` that adapters want drawn."""
    if not any(figure.client >= 0 for figure in commit.figures):
        return commit
    of, figures = {(stream.client, stream.name): stream for stream in streams}, []
    for figure in commit.figures:
        drawn = trees.load(figure.values) if figure.client >= 0 else {}
        if "features" in drawn:
            parts = of[figure.client, figure.stream].slots(batch_size)[figure.slot].parts
            labels = torch.cat([people.examples(held).y for held in parts])
            figure = figure._replace(values=trees.dump({**drawn, "classes": labels}))
        figures.append(figure)
    return replace(commit, figures=figures)
