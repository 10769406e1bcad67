"""Text that somebody wrote, as plain data: YAML without surprises.

Keys stand once, dates stay text, and what aliases and nesting grow to is bounded before anything is made of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

MOST_CHARACTERS = 1_000_000
MOST_VALUES = 100_000  # after all aliases are written out
MOST_LEVELS = 40
LARGEST = 2**53  # of whole numbers: beyond it not even floats count exactly


_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "int", "float", "bool", "null", "seq", "map", "merge")}


class Unreadable(ValueError):
    """What is wrong with a text."""


class _Loader(yaml.SafeLoader):
    """YAML's safe part, without dates, and with every key once."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        node = super().compose_node(parent, index)
        if node is not None and node.tag not in _TAGS:
            raise Unreadable(f"not readable as YAML: {short(node.tag)} has no meaning here")
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen and isinstance(key, yaml.ScalarNode):
                    raise Unreadable(f"the key '{short(key.value)}' stands twice (line {key.start_mark.line + 1})")
                seen.add(key.value if isinstance(key, yaml.ScalarNode) else id(key))
        return super().construct_mapping(node, deep)


# As YAML 1.2 has it: no dates, and only true and false are booleans, so that `on` may be a key.
_Loader.yaml_implicit_resolvers = {
    first: [
        (tag, pattern)
        for tag, pattern in resolvers
        if tag != "tag:yaml.org,2002:timestamp" and (tag != "tag:yaml.org,2002:bool" or first in "tTfF")
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load(text: str) -> Any:
    """The plain data of a text.

    >>> load("{lr: 0.1, since: 2020-99-99}")
    {'lr': 0.1, 'since': '2020-99-99'}
    """
    if len(text) > MOST_CHARACTERS:
        raise Unreadable(f"expected at most {MOST_CHARACTERS:,} characters; found {len(text):,}")
    try:
        found = yaml.load(text, _Loader)
    except Unreadable:
        raise
    except yaml.YAMLError as error:
        raise Unreadable(f"not readable as YAML: {short(' '.join(str(error).split()), 200)}") from error
    except RecursionError as error:
        raise Unreadable(f"expected at most {MOST_LEVELS} levels of nesting; found more") from error
    except Exception as error:  # of a tag that does not fit its value, such as !!int "x": anything may come
        raise Unreadable(f"not readable as YAML: {short(str(error))}") from error
    bound(found)
    return found


def bound(plain: Any) -> None:
    """Refuse data that grow beyond all measure when they are written out."""
    for count, _ in enumerate(_values(plain, 0)):
        if count >= MOST_VALUES:
            raise Unreadable(f"expected at most {MOST_VALUES:,} values; it grows to more through its aliases")


def unusual(plain: Any) -> Iterator[tuple[str, str]]:
    """Numbers that no option means, with their dotted keys: infinite, not a number, beyond what is counted exactly."""
    if isinstance(plain, Mapping):
        for key, item in plain.items():
            yield from ((f"{key}.{path}" if path else str(key), value) for path, value in unusual(item))
    elif isinstance(plain, list | tuple):
        for i, item in enumerate(plain):
            yield from ((f"{i}.{path}" if path else str(i), value) for path, value in unusual(item))
    elif isinstance(plain, float) and not math.isfinite(plain):
        yield "", f"{plain}"
    elif isinstance(plain, int) and abs(plain) > LARGEST:
        yield "", f"a whole number of {plain.bit_length()} bits"


def short(text: str, most: int = 80) -> str:
    """A text, cut where it is long."""
    return text if len(text) <= most else f"{text[:most]}…"


def _values(plain: Any, level: int) -> Iterator[Any]:
    """Every value there is, however often it is used."""
    if level > MOST_LEVELS:
        raise Unreadable(f"expected at most {MOST_LEVELS} levels of nesting; found more")
    yield plain
    items = plain.values() if isinstance(plain, dict) else plain if isinstance(plain, list | tuple | set) else ()
    for item in items:
        yield from _values(item, level + 1)
