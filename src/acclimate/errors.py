"""Errors a user can cause and mend; each says what was expected, what was found and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class AcclimateError(Exception):
    """Base of all errors below. The command line prints them without a traceback and exits with 2."""


MOST, LONGEST = 50, 600  # problems that are shown, and characters of each: a message is read by people


class ConfigError(AcclimateError):
    """An experiment that cannot be run as written; carries every problem found, not only the first."""

    def __init__(self, problems: Sequence[str], source: str = "the experiment") -> None:
        self.problems, self.source = list(problems), source
        shown = [problem if len(problem) <= LONGEST else f"{problem[:LONGEST]}…" for problem in self.problems[:MOST]]
        shown += [f"… and {len(self.problems) - MOST} more"] if len(self.problems) > MOST else []
        lines = "\n".join(f"  - {problem}" for problem in shown)
        super().__init__(f"{source} has {len(self.problems)} problem(s):\n{lines}")

    def __reduce__(self) -> tuple[type[ConfigError], tuple[list[str], str]]:
        return type(self), (self.problems, self.source)


class MissingKnowledge(AcclimateError):
    """An adapter or a phase needs something that no earlier phase exports (to this client)."""


class MissingData(AcclimateError):
    """A data set or file that is not where it was looked for, or not what it should be."""


class UnsupportedModel(AcclimateError):
    """A method needs layers that this model does not have."""


class UnsupportedInput(AcclimateError):
    """A batch that a method or a model cannot take."""


class ForeignState(AcclimateError):
    """A saved state of something else."""


class RunLocked(AcclimateError):
    """Another process works on the same run."""


class WorkerFailed(AcclimateError):
    """A worker process raised an unexpected error or died."""


class WorkerLost(WorkerFailed):
    """A worker process is gone, and with it what it kept: go on from what was saved last."""


class DamagedFile(AcclimateError):
    """A file of ours that is not as it was written, or is of a newer version."""


class Damage(UserWarning):
    """A file that was not as it should be, and what was done about it."""


class PhaseFailed(AcclimateError):
    """A phase in which no client's reply could ever be used."""


class NothingSelected(AcclimateError):
    """`tune` or `select` has nothing to choose from or nothing to score on."""


def shown(text: object) -> str:
    r"""A text as it can be shown anywhere: what would move a cursor or break a file is written out.

    >>> print(shown("a\x1b[31mb"))
    a\x1b[31mb
    """
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in str(text))


def nearest(name: object, possible: Iterable[str]) -> str:
    """A half-sentence with the closest possible name, or all of them.

    >>> nearest("tnet", ["tent", "none", "tent"])
    "did you mean 'tent'? Possible: none, tent"
    """
    names = sorted(set(possible))
    close = difflib.get_close_matches(str(name), names, n=1, cutoff=0.6)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"{hint}Possible: {', '.join(names) or 'nothing'}"
