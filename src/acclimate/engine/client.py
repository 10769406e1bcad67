"""The clients of a process. What they do is installed: a phase (`trainee.py`) or a test (`tester.py`).

A worker process does it for clients of a population, a device for itself; tasks and results are plain records
(`messages.py`). `Training` and `Trial` are what is installed, `Trainee` and `Tester` what becomes of them here.
"""

from __future__ import annotations

from acclimate.scenarios.population import Population, Slot


class Clients:
    """The clients of a process: their data, and their streams cut into batches, once for all tests.

    `secret` is what only they know, on a machine of their own: with it, nobody can draw again what hides their replies.
    """

    def __init__(self, people: Population, secret: str = "") -> None:
        self.people, self.secret = people, secret
        self._streams = {(s.client, s.name): s for s in (*people.validation_streams(), *people.streams)}
        self._cut: dict[tuple[int, str, int | str], list[Slot]] = {}

    def slots(self, client: int, stream: str, batch_size: int | str) -> list[Slot]:
        """A client's stream in batches."""
        key = (client, stream, batch_size)
        if key not in self._cut:
            self._cut[key] = self._streams[client, stream].slots(batch_size)
        return self._cut[key]
