"""Freed memory stays with the process: a training step needs the same megabytes again at once.

By default glibc gives large blocks back to the system as soon as a step is over, and every step pays for getting them
anew, page by page: 2 to 8 % of a worker's processor time with a small CNN, a fifth in a bare loop of steps. Results do
not depend on it, so other systems go without.
"""

from __future__ import annotations

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
LARGEST_BLOCK = 32 * 2**20  # the most that glibc takes for M_MMAP_THRESHOLD: what is larger still goes back
MOST_KEPT = 256 * 2**20  # free bytes at the heap's end


def keep_freed_memory() -> bool:
    """Ask the allocator of this process to; whether it does."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # none with musl
    return mallopt is not None and all(
        mallopt(*setting) for setting in ((M_MMAP_THRESHOLD, LARGEST_BLOCK), (M_TRIM_THRESHOLD, MOST_KEPT))
    )
