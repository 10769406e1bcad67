"""Digests of source code: what was made by other code is made again.

A digest covers modules and all that they import from this package, and what the engine imports. The engine itself has a
declared number instead (`engine/revision.py`). Comments, docstrings and layout do not count, nor do the methods that
only say what an honest client sends (`DOOR`): what such a client trains and adapts does not depend on them.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

from acclimate.engine.revision import REVISION

PACKAGE = __name__.partition(".")[0]
# What every phase and every test goes through: its revision stands for it.
ENGINE = (
    "engine",
    "contracts",
    "trees",
    "examples",
    "scenarios.population",
    "scenarios.availability",
    "scenarios.hostile",
)
# Methods of methods that say what an honest client sends.
DOOR = ("expects", "limits", "sends_back")
# What decides no bit of a phase or a test.
SILENT = ("", "errors", "options", "plugins", "api", "device", "experiment", "store", "report", "cli", "version")


def source_digest(modules: Iterable[str]) -> str:
    """Sixteen hexadecimal digits for the code of modules, of all they import from us, and the engine's revision."""
    return _hash({f"revision {REVISION}": "", **{name: _code(name)[0] for name in covered(modules)}})


def engine_digest() -> str:
    """The same for the code that the engine's revision stands for."""
    return _hash({name: _code(name)[0] for name in _engine()})


def covered(modules: Iterable[str]) -> set[str]:
    """The modules that a digest covers."""
    found: set[str] = set()
    # Of the data that the engine reads, a population has a digest.
    waiting = [*modules, *(used for name in _engine() for used in _uses(name) if not _is_of(used, ["data"]))]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _uses(name)
    return found


def written(source: str) -> str:
    """Code without comments, docstrings and layout.

    >>> written("x = 1  # one") == written("x=1") != written("x = 2")
    True
    """
    return _written(ast.parse(source))


@cache
def _engine() -> tuple[str, ...]:
    """The modules that the engine's revision stands for."""
    root = Path(__file__).parents[1]
    files = [file for room in ENGINE for file in _files(root / room.replace(".", "/"))]
    return tuple(".".join([PACKAGE, *file.relative_to(root).with_suffix("").parts]) for file in files)


def _uses(name: str) -> list[str]:
    """The modules that a module imports and that digests cover."""
    return [other for other in _code(name)[1] if not _is_of(other, (*ENGINE, *SILENT))]


@cache
def _code(name: str) -> tuple[str, tuple[str, ...]]:
    """The code of a module and the names of the modules that it imports of this package, or of its own."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return "", ()
    tree, found = ast.parse(Path(spec.origin).read_text(encoding="utf-8")), list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = importlib.util.resolve_name("." * node.level + (node.module or ""), spec.parent)
            found.append(module)
            found += [f"{module}.{alias.name}" for alias in node.names]
    packages = (PACKAGE, name.partition(".")[0])  # a plug-in may be a package
    ours = [module for module in found if module.partition(".")[0] in packages and _is_module(module)]
    return _written(_without_door(tree)), tuple(ours)


def _without_door(tree: ast.Module) -> ast.Module:
    """A module without the methods of `DOOR`, and without what it imports for them alone."""
    before = len(list(ast.walk(tree)))
    for node in [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]:
        node.body = [one for one in node.body if not (isinstance(one, ast.FunctionDef) and one.name in DOOR)]
    if len(list(ast.walk(tree))) < before:
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        for line in tree.body:
            if isinstance(line, ast.ImportFrom) and line.module != "__future__":
                line.names = [alias for alias in line.names if (alias.asname or alias.name) in used]
        tree.body = [line for line in tree.body if not (isinstance(line, ast.ImportFrom) and not line.names)]
    return tree


def _written(node: object) -> str:
    """As `ast.dump`, but the same for all versions of Python, and without docstrings."""
    if isinstance(node, list):
        return f"[{' '.join(map(_written, node))}]"
    if not isinstance(node, ast.AST) or isinstance(node, ast.Constant):
        return repr(node.value if isinstance(node, ast.Constant) else node)
    parts = dict(ast.iter_fields(node))
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and _has_docstring(node):
        parts["body"] = node.body[1:]
    # Newer versions add fields, which are empty where nothing new is used.
    return f"{type(node).__name__}({', '.join(f'{k}={_written(v)}' for k, v in parts.items() if v not in (None, []))})"


def _has_docstring(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    first = node.body[0] if node.body else None
    return isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)


def _is_of(module: str, rooms: Iterable[str]) -> bool:
    """Whether a module is in one of these rooms ('' is the package itself, without its rooms)."""
    place = module.partition(".")[2]
    return any(place == room or (room and place.startswith(f"{room}.")) for room in rooms)


def _files(room: Path) -> list[Path]:
    return sorted(room.rglob("*.py")) if room.is_dir() else [room.with_suffix(".py")]


def _hash(parts: Mapping[str, str]) -> str:
    digest = hashlib.sha256()
    for name in sorted(parts):
        digest.update(f"{name}\0{parts[name]}\0".encode())
    return digest.hexdigest()[:16]


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # `from package.module import thing`
        return False
