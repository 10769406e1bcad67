"""A bundle: a folder with a model, what its adapter knows, and a manifest that says how to put them together.

    manifest.json           method, options, classes, input, normalisation, where it comes from, versions, digests
    model.safetensors       the model's tensors by name
    knowledge.safetensors   what the adapter needs besides the model

No pickle, and no code: methods are those of the package, or plug-ins that whoever loads the bundle lists.
"""

from __future__ import annotations

import hashlib
import json
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from acclimate import params, plugins, trees
from acclimate.contracts import AdapterRecipe, Knowledge
from acclimate.data.folders import write_whole
from acclimate.device.adapted import Adapted, Method
from acclimate.device.inputs import Inputs, adaptable, dtype_of
from acclimate.device.revive import Plain, Reviver
from acclimate.errors import AcclimateError, ConfigError, MissingData
from acclimate.experiment.catalog import ADAPTERS, MODELS, PHASES
from acclimate.experiment.outside import ByName
from acclimate.models.build import Build
from acclimate.params import Params
from acclimate.version import __version__

FORMAT = "acclimate bundle 1"
MANIFEST, MODEL, KNOWLEDGE = "manifest.json", "model.safetensors", "knowledge.safetensors"


@dataclass(frozen=True)
class Problem:
    """What a model of the package must know to be built."""

    model: Plain  # its name and options
    shape: Sequence[int]  # channels, height, width
    mean: Sequence[float]
    std: Sequence[float]
    extended_by: Sequence[Plain] = ()  # phases that have added modules to it, with their options


@dataclass(frozen=True)
class Contents:
    """What a bundle holds."""

    method: Method
    tensors: Params
    classes: Sequence[str]  # their names
    problem: Problem | None = None  # None: whoever loads the bundle brings the model
    batch_size: int | str = 20
    origin: Mapping[str, Any] = field(default_factory=dict)


def write(folder: Path, contents: Contents, versions: Mapping[str, str]) -> Path:
    """Write a bundle; its manifest comes last, so that a folder with one is complete."""
    if (folder / MANIFEST).exists():
        raise ConfigError([f"{folder} has a bundle already and is not overwritten; choose another folder"], "export")
    tensors = {name: tensor.contiguous() for name, tensor in contents.tensors.items()}
    files = {MODEL: save_tensors(tensors), KNOWLEDGE: trees.dump(contents.method.knowledge)}
    method, problem = contents.method, contents.problem
    manifest = {
        "format": FORMAT,
        "method": {"name": method.name, "options": method.options, "takes": list(method.takes)},
        "model": None if problem is None else {**problem.model, "extended by": list(problem.extended_by)},
        "classes": list(contents.classes),
        "input": None if problem is None else {"shape": list(problem.shape), "values": "0 to 1"},
        "normalisation": None if problem is None else {"mean": list(problem.mean), "std": list(problem.std)},
        "batch size": contents.batch_size,
        "origin": dict(contents.origin),
        "versions": {"acclimate": __version__, **versions},
        "files": {name: hashlib.sha256(blob).hexdigest() for name, blob in files.items()},
    }
    for name, blob in {**files, MANIFEST: json.dumps(manifest, indent=2).encode()}.items():
        write_whole(folder / name, lambda file, blob=blob: file.write(blob))  # type: ignore[misc]
    return folder


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """The manifest of a bundle."""
    path = Path(folder) / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(path.read_bytes())
        found = manifest["format"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise MissingData(f"{path}: expected the manifest of a bundle ({error}); make one: acclimate export") from error
    if found != FORMAT:
        raise MissingData(f"{path}: expected format '{FORMAT}', found '{found}'; a newer acclimate may read it")
    if missing := [key for key in _KEYS if key not in manifest]:
        raise MissingData(f"{path} lacks {', '.join(missing)}; export the bundle again")
    for key, (words, fits) in _KEYS.items():
        if not fits(manifest[key]):
            found = json.dumps(manifest[key])[:80]
            raise MissingData(f"{path}: expected {words} as '{key}', found {found}; export the bundle again")
    return manifest


def load(folder: str | Path, *, plugins: Iterable[Any] = (), model: nn.Module | None = None) -> Adapted:
    """The adapted model of a bundle, ready for batches.

    Code outside the package is imported only if you list it: `plugins=["./mine.py:Smooth"]`, or the class itself. A
    bundle of a model of your own (`wrapped.export`) wants one of the same architecture as `model`.
    """
    folder, manifest = Path(folder), read_manifest(folder)
    reviver = Reviver(listed(plugins))
    with _blame(folder):
        tensors = load_tensors(_checked(folder, MODEL, manifest))
        net = _own(model, manifest) if manifest["model"] is None else _built(folder, manifest, reviver, tensors)
        _fill(net, tensors, folder)
        said, source, inputs = manifest["method"], params.of(net), Inputs(net)
        recipe = reviver.method({"name": said["name"], **said["options"]}, ADAPTERS)
        _check_options(recipe)
        knowledge: Knowledge = trees.load(_checked(folder, KNOWLEDGE, manifest))  # its classes came with the adapter's
        method = Method(said["name"], said["options"], knowledge, _kinds(said["takes"]))
        return Adapted(recipe(net, **knowledge), inputs, method, dtype_of(model or net), source)


def listed(allowed: Iterable[Any]) -> dict[str, Any]:
    """The plug-ins of a caller, by the name of the class."""
    try:
        return plugins.listed(allowed)
    except ValueError as error:
        raise ConfigError([str(error)], "plugins") from error


def _is_count(found: Any) -> bool:
    return type(found) is int and found >= 1


def _is_input(found: Any) -> bool:
    shape = found.get("shape") if isinstance(found, dict) else None
    return found is None or (isinstance(shape, list) and len(shape) == 3 and all(map(_is_count, shape)))


_MAPPING = ("a mapping", lambda found: isinstance(found, dict))
_MAPPING_OR_NULL = ("a mapping or null", lambda found: found is None or isinstance(found, dict))
_KEYS: dict[str, tuple[str, Callable[[Any], bool]]] = {  # of a manifest, what they hold, and whether something is it
    "method": _MAPPING,
    "model": _MAPPING_OR_NULL,
    "classes": ("a list", lambda found: isinstance(found, list)),
    "input": ("null, or a shape [channels, height, width]", _is_input),
    "normalisation": _MAPPING_OR_NULL,
    "batch size": ('1 or more, or "all",', lambda found: found == "all" or _is_count(found)),
    "origin": _MAPPING,
    "versions": _MAPPING,
    "files": _MAPPING,
}
_NUMBERS = (bool, int, float, int | None, float | None)  # as options are declared


@contextmanager
def _blame(folder: Path) -> Iterator[None]:
    """Whatever fails inside is the bundle's fault, unless it already says whose."""
    try:
        yield
    except AcclimateError:
        raise
    except Exception as error:
        raise MissingData(
            f"{folder}: expected a bundle as acclimate export writes it, found one that cannot be put together "
            f"({type(error).__name__}: {error}); export it again"
        ) from error


def _check_options(recipe: AdapterRecipe) -> None:
    """Options that are numbers must be given as such: most are first used when a batch comes."""
    hints = typing.get_type_hints(recipe.target.__init__)
    for name, found in recipe.options.items():
        hint = hints.get(name)
        if isinstance(found, AdapterRecipe):
            _check_options(found)
        elif hint in _NUMBERS and not isinstance(found, hint | int):  # 1 is as good as 1.0
            raise ValueError(f"option '{name}': expected a number, found {found!r}")


def _kinds(takes: Sequence[str]) -> Sequence[str]:
    possible = {entry.takes for entry in ADAPTERS.values()}
    if unknown := sorted(set(takes) - possible):
        raise ValueError(f"the method takes: expected {', '.join(sorted(possible))}; found {', '.join(unknown)}")
    return takes


def _fill(net: nn.Module, tensors: Params, folder: Path) -> None:
    try:
        params.load(net, tensors)
    except ValueError as error:
        raise MissingData(f"{folder}: the tensors are not those of the model: {error}") from error


class _NothingDrawn(TorchFunctionMode):
    """Leaves out the one way of drawing weights for which torch imports seconds' worth of code on a meta device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if func is Tensor.normal_ else func(*args, **(kwargs or {}))


def _built(folder: Path, manifest: Mapping[str, Any], reviver: Reviver, tensors: Params) -> nn.Module:
    """The model, without its tensors; one of the package is known to be theirs before memory is taken for it."""
    names = [one["name"] for one in (manifest["model"], *manifest["model"]["extended by"])]
    if not any(map(plugins.is_plugin, names)):  # they may compute while they are built, which takes numbers
        with torch.device("meta"), _NothingDrawn():
            _fill(_empty(manifest, reviver), tensors, folder)
    return _empty(manifest, reviver)


def _empty(manifest: Mapping[str, Any], reviver: Reviver) -> nn.Module:
    plain = {key: value for key, value in manifest["model"].items() if key not in ("name", "extended by")}
    name, normalisation = manifest["model"]["name"], manifest["normalisation"]
    target = reviver.target(name, MODELS)
    make = ByName(target) if plugins.is_plugin(name) else target
    mean, std = tuple(normalisation["mean"]), tuple(normalisation["std"])
    channels, height, width = manifest["input"]["shape"]
    if not {len(mean), len(std)} <= {1, channels}:
        raise ValueError(f"expected a mean and a std of each of {channels} channel(s), found {mean} and {std}")
    classes = len(manifest["classes"])
    net = Build(make, classes, (channels, height, width), mean, std, reviver.options(target, plain))()
    for phase in manifest["model"]["extended by"]:
        net = reviver.method(phase, PHASES).extend(net)
    return net


def _own(model: nn.Module | None, manifest: Mapping[str, Any]) -> nn.Module:
    if model is None:
        kind = manifest["origin"].get("class", "a model of your own")
        raise ConfigError([f"the bundle holds the tensors of {kind}; bring one: ac.load(folder, model=...)"], "load")
    return adaptable(model)


def _checked(folder: Path, name: str, manifest: Mapping[str, Any]) -> bytes:
    try:
        blob = (folder / name).read_bytes()
    except OSError as error:
        raise MissingData(f"{folder / name}: expected a file of the bundle, found none") from error
    if hashlib.sha256(blob).hexdigest() != manifest["files"].get(name):
        raise MissingData(f"{folder / name} is not the file that was exported (its sha256 differs); export it again")
    return blob
