"""Folders of image files: a folder per class, folders of domains with classes, and lists of files with labels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from acclimate.data.readers import TEST, TRAIN, Raw, find, split_column
from acclimate.data.readers.images import is_image, read_images
from acclimate.errors import MissingData


def read_classes(folder: Path, size: int, channels: int = 3, split: int | None = None, only: Sequence[str] = ()) -> Raw:
    """A folder per class: all folders found, or `only` those, in this order."""
    names = list(only) or _folders(folder)
    files, labels = _class_files([folder / name for name in names])
    columns = {} if split is None else {"split": np.full(len(labels), split)}
    return Raw(read_images(files, (size, size), channels), np.array(labels), columns, {}, () if only else tuple(names))


def read_domains(folder: Path, size: int, domains: Sequence[str]) -> Raw:
    """`domain/class/image`, as PACS and Office-Home are published; capitals and spaces of domains do not matter."""
    places = [_domain(folder, domain) for domain in domains]
    names = sorted({name for place in places for name in _folders(place)})
    files, labels, column = [], [], []
    for number, place in enumerate(places):
        found, of = _class_files([place / name for name in names])
        files += found
        labels += of
        column += [number] * len(found)
    if not files:
        raise MissingData(f"{folder}: expected images in {domains[0]}/<class>/, found none")
    return Raw(
        images=read_images(files, (size, size), 3),
        labels=np.array(labels),
        columns={
            "domain": np.array(column),
            "paths": np.array([file.relative_to(folder).as_posix() for file in files]),
        },
        names={"domain": tuple(domains)},
        classes=tuple(names),
    )


def read_lists(folder: Path, size: int, train: str, test: str) -> Raw:
    """Lists of `file label`, one per line, as MNIST-M is published; the files are in a folder of the list's name."""
    files, labels, sizes = [], [], []
    for name in (train, test):
        path = find(folder, name)
        pairs = [line.split() for line in path.read_text().splitlines() if line.strip()]
        if any(len(pair) != 2 or not pair[1].isdigit() for pair in pairs):
            raise MissingData(f"{path}: expected lines of a file name and a number, found others")
        place = path.with_name(path.name.removesuffix("_labels.txt"))
        files += [place / pair[0] for pair in pairs]
        labels += [int(pair[1]) for pair in pairs]
        sizes.append(len(pairs))
    return Raw(read_images(files, (size, size), 3), np.array(labels), {"split": split_column(*sizes)})


def read_tiny_imagenet(folder: Path) -> Raw:
    """Tiny-ImageNet: train/<wnid>/images, and val/images with val_annotations.txt; val is the test part."""
    root = find(folder, "wnids.txt").parent
    wnids = sorted((root / "wnids.txt").read_text().split())
    words = dict(line.split("\t", 1) for line in (root / "words.txt").read_text().splitlines() if "\t" in line)
    files, labels = _class_files([root / "train" / wnid / "images" for wnid in wnids])
    train, number = len(files), {wnid: k for k, wnid in enumerate(wnids)}
    notes = find(root, "val/val_annotations.txt")
    for line in notes.read_text().splitlines():
        name, wnid, *_ = line.split("\t")
        if wnid not in number:
            raise MissingData(f"{notes}: expected a class of wnids.txt, found {wnid}")
        files.append(root / "val" / "images" / name)
        labels.append(number[wnid])
    columns = {"split": np.repeat([TRAIN, TEST], [train, len(files) - train])}
    classes = tuple(words.get(wnid, wnid).split(",")[0].strip() for wnid in wnids)
    return Raw(read_images(files, (64, 64), 3), np.array(labels), columns, {"wnid": tuple(wnids)}, classes)


def _folders(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir() if one.is_dir() and not one.name.startswith("."))


def _domain(folder: Path, domain: str) -> Path:
    places = [folder, *(one for one in sorted(folder.iterdir()) if one.is_dir())]
    for place in places:
        for name in _folders(place):
            if _plain(name) == _plain(domain):
                return place / name
    raise MissingData(f"{folder}: expected a folder '{domain}' here or one folder below, found none")


def _plain(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def _class_files(places: Sequence[Path]) -> tuple[list[Path], list[int]]:
    files: list[Path] = []
    labels: list[int] = []
    for number, place in enumerate(places):
        found = sorted(one for one in place.iterdir() if is_image(one)) if place.is_dir() else []
        files += found
        labels += [number] * len(found)
    if not files and places:
        raise MissingData(f"{places[0]}: expected images in class folders such as this, found none")
    return files, labels
