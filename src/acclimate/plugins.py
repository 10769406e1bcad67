"""Code outside this package: `package.module:Class`, or `./file.py:Class` beside whoever names it.

Nothing is imported that nobody named: an experiment file imports what it names when a user reads it, everything else
(`ac.load`, a node on another machine) only what its caller lists. A file is imported under a name made from its code,
so that another process, or tomorrow's, finds the same module under the same name, wherever the file stands.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

PREFIX = "acclimate_plugin_"


class Imported(NamedTuple):
    """A plug-in that is in use."""

    written: str  # as it was named
    module: str  # under which it is found in `sys.modules`
    file: str


_imported: dict[str, Imported] = {}  # by name of the module, in the order of import


def is_plugin(name: object) -> bool:
    """Whether a name is that of something outside the catalog.

    >>> is_plugin("./mine.py:Smooth"), is_plugin("tent")
    (True, False)
    """
    return isinstance(name, str) and ":" in name


def load(written: str, folder: Path = Path()) -> Any:
    """The class or function that a name stands for; a file is looked for from `folder`. ValueError: why it is not."""
    place, _, name = written.rpartition(":")
    if place.endswith(".py"):
        file = (folder / Path(place).expanduser()).resolve()
        if not file.is_file():
            raise ValueError(f"no file {file}; a path is relative to the file that names it")
        module = _guarded(written, lambda: _import_file(file))
    else:
        module = _guarded(written, lambda: importlib.import_module(place))
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        raise ValueError(f"'{place}' has no '{name}'; it has: {', '.join(own) or 'nothing'}")
    if module.__name__.partition(".")[0] != __name__.partition(".")[0]:  # the catalog's own need no notice
        _imported[module.__name__] = Imported(written, module.__name__, str(getattr(module, "__file__", "") or ""))
    return found


def listed(allowed: Iterable[Any]) -> dict[str, Any]:
    """Plug-ins that a caller allows, as names or as the classes themselves, by the name of the class."""
    found: dict[str, Any] = {}
    for one in (load(one) if isinstance(one, str) else one for one in allowed):
        other = found.setdefault(one.__qualname__, one)
        if other is not one:  # a manifest says no more than the name of the class
            raise ValueError(
                f"two plug-ins are called '{one.__qualname__}', one of {other.__module__} and one of {one.__module__}; "
                "list one of them, or rename it"
            )
    return found


def pick(written: str, allowed: dict[str, Any]) -> Any:
    """The plug-in that a manifest or a server means, if the caller has listed it; ValueError: it has not."""
    name = written.rpartition(":")[2]
    if name not in allowed:
        raise ValueError(
            f"'{written}' is code outside acclimate, and nothing is imported that you did not list; "
            f"if you trust it: plugins=['{written}'], with the path from here, or plugins=[{name}]; "
            f"on the command line --plugin {written}"
        )
    return allowed[name]


def imported() -> list[Imported]:
    """All plug-ins in use in this process, in the order of import."""
    return list(_imported.values())


def share(plugins: Iterable[Imported]) -> None:
    """Import what another process of ours has in use, under the same names.

    What is gone by now was for something earlier, and is missed only by whoever still needs it.
    """
    for one in plugins:
        with suppress(ImportError, OSError):
            if one.module.startswith(PREFIX):
                _import_file(Path(one.file), one.module)
            else:
                importlib.import_module(one.module)
            _imported[one.module] = one


def _import_file(file: Path, name: str | None = None) -> Any:
    source = file.read_text(encoding="utf-8")
    # Comments and layout do not count: what was saved before such an edit is still found.
    code = hashlib.sha256(ast.dump(ast.parse(source)).encode()).hexdigest()[:10]
    name = name or f"{PREFIX}{file.stem}_{code}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _guarded(written: str, importing: Callable[[], Any]) -> Any:
    try:
        return importing()
    except Exception as error:  # whatever the user's own code does
        raise ValueError(f"importing '{written}' failed: {type(error).__name__}: {error}") from error
