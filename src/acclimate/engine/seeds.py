"""Addressed randomness: every draw depends on where it happens, never on what happened before."""

from __future__ import annotations

import hashlib

import torch


def address(*parts: int | str) -> int:
    """A 63-bit seed for a place such as (seed, phase, round, client, call).

    >>> address(0, "phase", 1) == address(0, "phase", 1), address(0, 11) == address(0, 1, 1)
    (True, False)
    """
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_call(*parts: int | str) -> None:
    """Seed torch's default generator for one contract call.

    The generator itself: `torch.manual_seed` formats a stack trace for every kind of accelerator, which costs
    more than a small model's batch.
    """
    torch.default_generator.manual_seed(address(*parts))


def generator(*parts: int | str) -> torch.Generator:
    """A generator of its own for one purpose."""
    return torch.Generator().manual_seed(address(*parts))
