"""Digests of source code: what was made by other code is made again."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterable
from functools import cache
from pathlib import Path

PACKAGE = __name__.partition(".")[0]


def source_digest(modules: Iterable[str]) -> str:
    """Sixteen hexadecimal digits for the source of modules and of all they import from this package."""
    seen: dict[str, bytes] = {}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            text, imported = _source(name)
            seen[name] = text
            waiting += imported
    digest = hashlib.sha256()
    for name in sorted(seen):
        digest.update(name.encode() + b"\0" + seen[name] + b"\0")
    return digest.hexdigest()[:16]


@cache
def _source(name: str) -> tuple[bytes, tuple[str, ...]]:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return b"", ()
    text = Path(spec.origin).read_bytes()
    found: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return text, tuple(module for module in found if module.partition(".")[0] == PACKAGE and _is_module(module))


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # `from package.module import thing`
        return False
