"""Run all benchmarks and print what was required beside what was measured."""

from __future__ import annotations

import os
import time

from acclimate.errors import MissingData
from benchmarks import atp, augment, btfl, bundle, corruptions, exchange, fedtta, guard, many_clients, training, tsa
from benchmarks.measure import busy


def main() -> None:
    start, others = time.perf_counter(), busy()
    print(f"{os.cpu_count()} cores, of which other programs keep {others:.1f} busy")
    lines = [
        *training.run(),
        *atp.run(),
        *fedtta.run(),
        *btfl.run(),
        *augment.run(),
        *tsa.run(),
        *exchange.run(),
        *many_clients.run(),
        *bundle.run(),
        *guard.run(),
    ]
    print(f"\n{'median and range of interleaved runs':<68} {'median':>6}   {'range':<16} required")
    for line in lines:
        print(line)
    try:
        corruptions.main()
    except MissingData as error:
        print(f"corruptions were left out: {error}")
    after = busy()
    print(f"{time.perf_counter() - start:.0f} s; other programs keep {after:.1f} cores busy now")
    if max(others, after) > 0.2:
        print("The machine was busy, which slows loops with two threads most: run again when it is quiet.")


if __name__ == "__main__":
    main()
