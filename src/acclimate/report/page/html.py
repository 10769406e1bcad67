"""HTML from Python: whatever is a plain string is text and is escaped; only tags made here are markup."""

from __future__ import annotations

import json
from collections.abc import Iterable
from html import escape
from typing import Any

VOID = ("meta", "br", "link")


class Html(str):
    """Markup that was made here, safe to put into a page."""


def tag(name: str, /, *children: str | Iterable[str] | None, **attributes: str | int | bool | None) -> Html:
    """An element; `class_` is class, `data_x` is data-x, None is left out.

    >>> print(tag("p", "1 < 2", tag("b", "!"), class_="x"))
    <p class="x">1 &lt; 2<b>!</b></p>
    """
    given = "".join(
        _attribute(key, value) for key, value in attributes.items() if value is not None and value is not False
    )
    return Html(f"<{name}{given}>" if name in VOID else f"<{name}{given}>{joined(*children)}</{name}>")


def joined(*children: str | Iterable[str] | None) -> Html:
    """Several as one; nothing for None."""
    parts: list[str] = []
    for child in children:
        if isinstance(child, Html):
            parts.append(child)
        elif isinstance(child, str):
            parts.append(escape(child))
        elif child is not None:
            parts.append(joined(*child))
    return Html("".join(parts))


def script(content: str, **attributes: str) -> Html:
    """A script of our own; it must not end itself."""
    if "</script" in content.lower():
        raise ValueError("a script that contains </script> would end early")
    given = "".join(_attribute(key, value) for key, value in attributes.items())
    return Html(f"<script{given}>{content}</script>")


def data(id: str, value: Any) -> Html:
    """Plain data for scripts; no name in it can end the element or begin another."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return script(text, type="application/json", id=id)


def _attribute(key: str, value: str | int | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
