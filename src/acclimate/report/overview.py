"""The first table of docs/reproduction.md: what was run of each table, and how much of what one expects holds."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from acclimate.report.claims import Verdict

NAME = "overview"
CONTRADICTED = "Contradicted (difference of client accuracies in points, ± its standard error):"
VERDICTS = ("holds", "within noise", "contradicted")


def with_overview(page: str, results: Path) -> str:
    """The page with its overview, new or replaced, from the results files of its sections."""
    bare = re.sub(rf"<!-- {NAME} -->.*?<!-- /{NAME} -->\n+", "", page, flags=re.DOTALL)
    files = [results / f"{name}.json" for name in re.findall(r"^<!-- ([\w.-]+) -->$", bare, re.MULTILINE)]
    found = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]
    found = [table for table in found if "of" in table]  # earlier code did not write it
    head, mark, sections = bare.partition("<!-- ")
    lines = [f"<!-- {NAME} -->", *_lines(found), f"<!-- /{NAME} -->", "", ""]
    return head + "\n".join(lines) + mark + sections


def heading(title: str, name: str) -> str:
    """The heading of a table's section."""
    return f"{title} (`{name}`)"


def grid(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown.

    >>> grid(["a", "b"], [["1", "2"]])
    ['| a | b |', '| --- | --- |', '| 1 | 2 |']
    """
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def _lines(found: Sequence[dict[str, Any]]) -> Iterator[str]:
    rows, contradicted = [], []
    for table in found:
        verdicts = Counter(claim["verdict"].split(":")[0] for claim in table["claims"])
        run = f"{len(table['pieces'])} of {table['of']}"
        rows.append([_link(table), run, *(str(verdicts[verdict]) for verdict in VERDICTS)])
        for claim in (Verdict(**plain) for plain in table["claims"]):
            if claim.verdict == "contradicted":
                measured = f"{claim.difference:+.2f} ± {claim.error:.2f}"
                contradicted.append(f"- `{table['table']}`, {claim.place}: {claim.expected}; {measured}")
    yield from grid(["table", "pieces run", *(f"expectations: {verdict}" for verdict in VERDICTS)], rows)
    if contradicted:
        yield from ["", CONTRADICTED, "", *contradicted]


def _link(table: dict[str, Any]) -> str:
    anchor = re.sub(r"[^\w\- ]", "", heading(table["title"], table["table"]).lower()).replace(" ", "-")
    return f"[{table['title']}](#{anchor})"
