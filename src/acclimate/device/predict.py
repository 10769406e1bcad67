"""Predictions for unlabelled image files, batch by batch, as a CSV file; whoever runs it again goes on.

Rows are written before the state that belongs to them, and the state says how many rows it has seen: what a crash left
beyond it is predicted again.
"""

from __future__ import annotations

import csv
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from acclimate import trees
from acclimate.data.folders import write_whole
from acclimate.data.readers.images import is_image, read_images
from acclimate.device.adapted import Adapted
from acclimate.device.bundle import load, read_manifest
from acclimate.errors import ConfigError, MissingData
from acclimate.losses import entropy

COLUMNS = ("path", "class", "probability", "entropy", "intervened")


class Row(NamedTuple):
    """What is said of one image."""

    path: str
    label: str
    probability: float  # of that class
    entropy: float  # of all classes, in nats
    intervened: str  # whether the guard stepped in at its batch

    def written(self) -> list[str]:
        """As in the file."""
        return [self.path, self.label, f"{self.probability:.6f}", f"{self.entropy:.6f}", self.intervened]


def listed_images(source: str, stdin: Iterable[str]) -> list[str]:
    """The images of a folder (and those below it), of a CSV file with a column `path`, or of `-`: lines of stdin.

    Paths in a CSV file are relative to it.
    """
    if source == "-":
        return [line.strip() for line in stdin if line.strip()]
    path = Path(source)
    if path.is_dir():
        found = [str(file) for file in sorted(path.rglob("*")) if is_image(file)]
        if not found:
            raise MissingData(f"{path}: expected images (.png, .jpg, ...) in this folder or below, found none")
        return found
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise MissingData(f"{path}: expected a folder of images or a CSV file with a column path ({error})") from error
    if not rows or not rows[0].get("path"):
        raise MissingData(
            f"{path}: expected a column 'path' and a line per image, found {list(rows[0]) if rows else 0}"
        )
    return [str(path.parent / row["path"]) for row in rows]


def predict_images(
    folder: Path,
    paths: Sequence[str],
    out: Path,
    state: Path | None = None,
    batch_size: int | None = None,
    plugins: Iterable[Any] = (),
) -> tuple[int, int]:
    """Write predictions of images to `out`; how many now, and how many in all."""
    manifest, adapted = read_manifest(folder), load(folder, plugins=plugins)
    if manifest["input"] is None:
        raise ConfigError(["the bundle says nothing of images, since its model is one of your own; use it from Python"])
    progress = _Progress(out, paths)
    if (done := progress.resume(adapted)) is None:
        done = 0
        if state is not None and state.exists():
            adapted.load(state)
        progress.begin(adapted)
    size = batch_size or manifest["batch size"]
    step = len(paths) or 1 if size == "all" else int(size)
    for start in range(done, len(paths), step):
        part = paths[start : start + step]
        x = _batch(part, manifest["input"]["shape"])
        progress.add(list(rows(adapted, part, x, manifest["classes"])), adapted)
    if state is not None:
        adapted.save(state)
    progress.end()
    return len(paths) - done, len(paths)


def rows(adapted: Adapted, paths: Sequence[str], x: Tensor, classes: Sequence[str]) -> Iterator[Row]:
    """Adapt to a batch and say what each image is."""
    logits = adapted(x)
    intervened = "yes" if adapted.intervened else "no"
    p, doubt = logits.softmax(-1).max(-1), entropy(logits)
    for path, label, share, h in zip(paths, p.indices.tolist(), p.values.tolist(), doubt.tolist(), strict=True):
        yield Row(path, classes[label], share, h, intervened)


def _batch(paths: Sequence[str], shape: Sequence[int]) -> Tensor:
    channels, height, width = shape
    pixels = np.concatenate(list(read_images([Path(p) for p in paths], (height, width), channels, upright=True)))
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float().div_(255)


class _Progress:
    """A CSV file that grows, and beside it, until it is complete, how far it is."""

    def __init__(self, out: Path, paths: Sequence[str]) -> None:
        self.out, self.beside = out, out.with_name(f"{out.name}.progress")
        self.of = hashlib.sha256("\n".join(paths).encode()).hexdigest()[:16]
        self.done, self.bytes = 0, 0

    def resume(self, adapted: Adapted) -> int | None:
        """How many images are done, with the adapter as it was after them; None: nothing was begun."""
        if not self.beside.exists():
            if self.out.exists():
                raise ConfigError([f"{self.out} exists already and is not overwritten; choose another name"], "adapt")
            return None
        found = trees.load(self.beside.read_bytes())
        if found["of"] != self.of:
            raise ConfigError(
                [f"{self.beside} is of other images; finish those first, or remove it with {self.out}"], "adapt"
            )
        self.done, self.bytes = found["done"], found["bytes"]
        adapted.load_signed(found["state"], self.beside)
        with self.out.open("r+b") as file:
            file.truncate(self.bytes)
        return self.done

    def begin(self, adapted: Adapted) -> None:
        with self.out.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerow(COLUMNS)
            self.bytes = file.tell()
        self._save(adapted)

    def add(self, rows: Sequence[Row], adapted: Adapted) -> None:
        with self.out.open("a", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(row.written() for row in rows)
            file.flush()
            os.fsync(file.fileno())
            self.bytes = file.tell()
        self.done += len(rows)
        self._save(adapted)

    def end(self) -> None:
        self.beside.unlink()

    def _save(self, adapted: Adapted) -> None:
        nest = {"of": self.of, "done": self.done, "bytes": self.bytes, "state": adapted.signed()}
        content = trees.dump(nest)
        write_whole(self.beside, lambda file: file.write(content))
