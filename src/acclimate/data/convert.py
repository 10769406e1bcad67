"""From a published form to a pack: out of a folder, or from the Hugging Face hub when that is asked for."""

from __future__ import annotations

from pathlib import Path

from acclimate.data import sources
from acclimate.data.folders import data_folder
from acclimate.data.packs import open_pack, write_pack
from acclimate.data.readers import Raw
from acclimate.data.readers.hub import read_hub
from acclimate.data.sealed import remove
from acclimate.errors import MissingData


def convert(name: str, folder: Path) -> Path:
    """Write the pack of a data set from the files its authors publish, found in `folder` or one folder below."""
    source = sources.find(name)
    if not folder.is_dir():
        raise MissingData(f"{folder}: expected a folder with the files of '{name}', found none")
    found = sources.recognise(source, folder)
    if found is None:
        forms = "; or ".join(f"{form.what} ({', '.join(form.files)})" for form in source.forms)
        raise MissingData(
            f"{folder}: expected here or one folder below {forms or 'nothing: it is embedded'}; found none"
        )
    form, place = found
    path = _target(name)
    return _write(name, path, form.read(place))


def get(name: str) -> Path:
    """Download a data set from the Hugging Face hub and write its pack. Uses the network."""
    source = sources.find(name)
    if source.hub is None:
        raise MissingData(
            f"'{name}' has no place on the Hugging Face hub that is known here; get it from {source.origin}"
        )
    path, hub = _target(name), source.hub
    raw = read_hub(
        hub.id,
        hub.splits,
        source.shape,
        image=hub.image,
        label=hub.label,
        config=hub.config,
        columns=hub.columns,
    )
    return _write(name, path, raw)


def _target(name: str) -> Path:
    source = sources.find(name)
    path = data_folder() / source.files[0]
    if path.exists():
        raise MissingData(f"{path} exists already and is not overwritten; move it away to convert again")
    return path


def _write(name: str, path: Path, raw: Raw) -> Path:
    """Write the pack and read it back; one that cannot be read does not stay."""
    source = sources.find(name)
    try:
        write_pack(path, raw.images, raw.labels, raw.columns, raw.names, raw.classes)
    except OSError as error:
        raise MissingData(f"{path}: could not be written ({error}); set ACCLIMATE_DATA to a folder of yours") from error
    try:
        open_pack(path, source.classes, source.shape, invert=source.invert)
    except BaseException:
        remove(path)
        raise
    return path
