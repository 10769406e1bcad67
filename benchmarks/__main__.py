"""Run all benchmarks, or those named, print what was required beside what was measured, and write docs/speed.md.

All: `python -m benchmarks`. Some: `python -m benchmarks local states`; what others found before stays on the page.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from acclimate.errors import MissingData
from benchmarks import (
    adapters,
    atp,
    augment,
    btfl,
    bundle,
    corruptions,
    exchange,
    fedtta,
    guard,
    local,
    many_clients,
    many_exchanging,
    page,
    personal,
    states,
    training,
    tsa,
)
from benchmarks.measure import GROWTH, Line, busy
from benchmarks.peers import compare

ALL: dict[str, tuple[str, Callable[[], list[Line]]]] = {
    "local": ("One process beside a bare loop", local.run),
    "training": ("Two workers, and a CNN", training.run),
    "peers": ("Beside pfl and Flower", compare.run),
    "states": ("Phases whose clients keep states", states.run),
    "exchange": ("Tests with exchanges", exchange.run),
    "personal": ("Tests of clients with a model each", personal.run),
    "tsa": ("TSA", tsa.run),
    "adapters": ("Adapters", adapters.run),
    "atp": ("ATP", atp.run),
    "fedtta": ("FedTTA", fedtta.run),
    "btfl": ("BTFL, FedTHE, TTT and MEMO beyond a forward pass", btfl.run),
    "augment": ("Augmented views", augment.run),
    "many_clients": ("Ten thousand clients", many_clients.run),
    "many_exchanging": ("Two thousand exchanging clients", many_exchanging.run),
    "bundle": ("A device's cold start", bundle.run),
    "guard": ("The guard", guard.run),
}


def main(names: list[str]) -> None:
    start, others = time.perf_counter(), busy()
    print(f"{os.cpu_count()} cores, of which other programs keep {others:.1f} busy")
    if unknown := [name for name in names if name not in ALL]:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(ALL)}")
    found: list[page.Measured] = []
    for name in names or ALL:
        title, run = ALL[name]
        begin = time.perf_counter()
        GROWTH.clear()
        lines = run()
        found.append(page.Measured(title, lines, list(GROWTH), page.machine(max(others, busy()))))
        print(f"  {name}: {time.perf_counter() - begin:.0f} s", flush=True)
    print(f"\n{'median and range of interleaved runs':<68} {'median':>6}   {'range':<16} required")
    for line in (line for one in found for line in one.lines):
        print(line)
    if not names:
        try:
            corruptions.main()
        except MissingData as error:
            print(f"corruptions were left out: {error}")
    print(f"{time.perf_counter() - start:.0f} s")
    print(f"written: {page.write(found, [title for title, _ in ALL.values()])}")


if __name__ == "__main__":
    main(sys.argv[1:])
