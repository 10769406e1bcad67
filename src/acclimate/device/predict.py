"""Predictions for unlabelled image files, batch by batch, as a CSV file; whoever runs it again goes on.

Rows are written before the state that belongs to them, and the state says how many rows it has seen: what a crash left
beyond it is predicted again. An image that cannot be read has a row that says why, and no other effect: what is learnt
and said of the others is as if it had not been listed.
"""

from __future__ import annotations

import csv
import hashlib
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from acclimate import trees
from acclimate.data.folders import write_whole
from acclimate.data.readers.images import is_image, read_image
from acclimate.device.adapted import Adapted
from acclimate.device.bundle import load, read_manifest
from acclimate.engine.sealed import sealed, unsealed
from acclimate.errors import ConfigError, Damage, DamagedFile, MissingData
from acclimate.losses import entropy

COLUMNS = ("path", "class", "probability", "entropy", "intervened", "problem")
Pixels = NDArray[np.uint8]


class Row(NamedTuple):
    """What is said of one image."""

    path: str
    label: str
    probability: float  # of that class
    entropy: float  # of all classes, in nats
    intervened: str  # whether the guard stepped in at its batch

    def written(self) -> list[str]:
        """As in the file."""
        return [self.path, self.label, f"{self.probability:.6f}", f"{self.entropy:.6f}", self.intervened, ""]


class Unread(NamedTuple):
    """An image that cannot be read."""

    path: str
    problem: str  # why

    def written(self) -> list[str]:
        """As in the file."""
        return [self.path, "", "", "", "", self.problem]


class Read(NamedTuple):
    """An image that was read."""

    path: str
    pixels: Pixels  # [height, width, channels]
    problem: str = ""


def listed_images(source: str, stdin: Iterable[str]) -> list[str]:
    """The images of a folder (and those below it), of a CSV file with a column `path`, or of `-`: lines of stdin.

    Paths in a CSV file are relative to it.
    """
    if source == "-":
        try:
            return [line.strip() for line in stdin if line.strip()]
        except UnicodeDecodeError as error:
            raise MissingData(
                f"stdin: expected a path per line, in UTF-8 ({error}); name the folder instead"
            ) from error
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
    if not rows or "path" not in rows[0]:
        raise MissingData(
            f"{path}: expected a column 'path' and a line per image, found {list(rows[0]) if rows else 0}"
        )
    for number, row in enumerate(rows, start=2):
        if not row["path"]:
            raise MissingData(f"{path}, line {number}: expected a path in column 'path', found none")
    return [str(path.parent / row["path"]) for row in rows]


def predict_images(
    folder: Path,
    paths: Sequence[str],
    out: Path,
    state: Path | None = None,
    batch_size: int | None = None,
    plugins: Iterable[Any] = (),
) -> tuple[int, int]:
    """Write predictions of images to `out`; how many now, and how many in all.

    Images that cannot be read are told of in the file and, at the end, in a warning (`Damage`). Where none can be, that
    is MissingData, and nothing is left behind.
    """
    if batch_size is not None and batch_size < 1:
        raise ConfigError([f"batch size: expected 1 or more, found {batch_size}"], "adapt")
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
    for batch in _batches(paths[done:], step, manifest["input"]["shape"]):
        progress.add(list(rows(adapted, batch, manifest["classes"])), adapted)
        if progress.unread == len(paths):  # a wrong folder rather than damaged images
            progress.undo()
            raise MissingData(f"none of the {len(paths)} images can be read; {batch[-1].path}: {batch[-1].problem}")
    if state is not None:
        adapted.save(state)
    progress.end()
    if progress.unread:
        told = f"{progress.unread} of {len(paths)} images could not be read and have no prediction"
        warnings.warn(f"{told}; {out} says why, in column 'problem'", Damage, stacklevel=2)
    return len(paths) - done, len(paths)


def rows(adapted: Adapted, batch: Sequence[Read | Unread], classes: Sequence[str]) -> Iterator[Row | Unread]:
    """Adapt to the images of a batch that could be read, and say what each is."""
    read = [image for image in batch if isinstance(image, Read)]
    said = iter(_predicted(adapted, read, classes) if read else ())
    for image in batch:
        yield next(said) if isinstance(image, Read) else image


def _predicted(adapted: Adapted, images: Sequence[Read], classes: Sequence[str]) -> Iterator[Row]:
    x = torch.from_numpy(np.stack([image.pixels for image in images])).permute(0, 3, 1, 2).float().div_(255)
    logits = adapted(x)
    intervened = "yes" if adapted.intervened else "no"
    p, doubt = logits.softmax(-1).max(-1), entropy(logits)
    for image, label, share, h in zip(images, p.indices.tolist(), p.values.tolist(), doubt.tolist(), strict=True):
        yield Row(image.path, classes[label], share, h, intervened)


def _batches(paths: Sequence[str], size: int, shape: Sequence[int]) -> Iterator[list[Read | Unread]]:
    """Images in their order, `size` that can be read at a time and what is between them."""
    batch, read = list[Read | Unread](), 0
    for path in paths:
        batch.append(_read(path, shape))
        read += isinstance(batch[-1], Read)
        if read == size:
            yield batch
            batch, read = [], 0
    if batch:
        yield batch


def _read(path: str, shape: Sequence[int]) -> Read | Unread:
    channels, height, width = shape
    try:
        return Read(path, read_image(Path(path), (height, width), channels, upright=True))
    except Exception as error:  # whatever a decoder does with a damaged file: one image must not stop the others
        return Unread(path, str(error).removeprefix(f"{Path(path)}: ") or type(error).__name__)


class _Progress:
    """A CSV file that grows, and beside it, until it is complete, how far it is."""

    def __init__(self, out: Path, paths: Sequence[str]) -> None:
        self.out, self.beside = out, out.with_name(f"{out.name}.progress")
        self.of = hashlib.sha256("\n".join(paths).encode(errors="backslashreplace")).hexdigest()[:16]
        self.done, self.bytes, self.unread = 0, 0, 0

    def resume(self, adapted: Adapted) -> int | None:
        """How many images are done, with the adapter as it was after them; None: nothing was begun."""
        if not self.beside.exists():
            if self.out.exists():
                raise ConfigError([f"{self.out} exists already and is not overwritten; choose another name"], "adapt")
            return None
        begin_again = f"to begin again, remove it with {self.out}"
        found = trees.load(unsealed(self.beside.read_bytes(), "progress", f"{self.beside} ({begin_again})"))
        if found["of"] != self.of:
            raise ConfigError(
                [f"{self.beside} is of other images; finish those first, or remove it with {self.out}"], "adapt"
            )
        self.done, self.bytes, self.unread = found["done"], found["bytes"], found["unread"]
        size = self.out.stat().st_size if self.out.exists() else 0
        if size < self.bytes:
            raise DamagedFile(
                f"{self.out}: expected at least the {self.bytes} bytes that {self.beside} tells of, found {size}; "
                f"{begin_again}"
            )
        adapted.load_signed(found["state"], self.beside)
        with self.out.open("r+b") as file:
            file.truncate(self.bytes)
        return self.done

    def begin(self, adapted: Adapted) -> None:
        with self._opened("w") as file:
            csv.writer(file).writerow(COLUMNS)
            self.bytes = file.tell()
        self._save(adapted)

    def add(self, rows: Sequence[Row | Unread], adapted: Adapted) -> None:
        with self._opened("a") as file:
            csv.writer(file).writerows(row.written() for row in rows)
            file.flush()
            os.fsync(file.fileno())
            self.bytes = file.tell()
        self.done += len(rows)
        self.unread += sum(isinstance(row, Unread) for row in rows)
        self._save(adapted)

    def end(self) -> None:
        self.beside.unlink()

    def undo(self) -> None:
        self.out.unlink()
        self.beside.unlink()

    def _opened(self, mode: str) -> IO[str]:
        """The file, in which a name that is no UTF-8 is written out, so that any reader can read it."""
        return self.out.open(mode, newline="", encoding="utf-8", errors="backslashreplace")

    def _save(self, adapted: Adapted) -> None:
        nest = {"of": self.of, "done": self.done, "bytes": self.bytes, "unread": self.unread, "state": adapted.signed()}
        content = sealed(trees.dump(nest), "progress")
        write_whole(self.beside, lambda file: file.write(content))
