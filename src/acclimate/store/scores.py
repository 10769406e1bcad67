"""What a system reached on one stream and one seed, from the counts of its clients."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from acclimate.store.records import Counts, Entry

if TYPE_CHECKING:
    from acclimate.store.run import Run


class Scored(NamedTuple):
    """A line of `Run.table()`."""

    system: str
    selected: bool  # after the round best on source validation data; else after the last one
    stream: str
    seed: int
    clients: int  # with labels
    accuracy: float  # over all images
    client_accuracy: float  # the plain mean over clients
    balanced_accuracy: float  # the mean over classes
    worst_decile: float  # the mean of the worst ⌈10 %⌉ of clients
    harmed: float  # the share of clients strictly below no adaptation, same model, phases, test and seed
    ms_per_batch: float
    bytes_per_slot: float  # up and down, per client
    stepped_in: float  # the share of all batches at which a guard stepped in; not a number where there is none

    @property
    def entry(self) -> Entry:
        return Entry(self.system, self.selected)


def scored(run: Run) -> list[Scored]:
    """Everything that was tested on somebody with labels."""
    return [
        one
        for entry in run.entries
        for stream in run.streams
        for seed in run.seeds
        if (one := _scored(run, entry, stream, seed)) is not None
    ]


def accuracies(clients: Mapping[int, Counts]) -> dict[int, float]:
    """Client → accuracy, of those with labels."""
    return {client: of.correct / of.seen for client, of in clients.items() if of.seen}


def _scored(run: Run, entry: Entry, stream: str, seed: int) -> Scored | None:
    clients = run.counts.get((entry, seed, stream), {})
    each = accuracies(clients)
    if not each:  # not tested yet, or nobody has labels
        return None
    costs, plain = run.costs[entry], accuracies(run.counts.get((run.baseline(entry), seed, stream), {}))
    recalls = [of.correct / of.seen for of in run.classes.get((entry, seed, stream), {}).values() if of.seen]
    both = [client for client in each if client in plain]
    return Scored(
        entry.system,
        entry.selected,
        stream,
        seed,
        clients=len(each),
        accuracy=sum(of.correct for of in clients.values()) / sum(of.seen for of in clients.values()),
        client_accuracy=statistics.fmean(each.values()),
        balanced_accuracy=statistics.fmean(recalls) if recalls else math.nan,
        worst_decile=statistics.fmean(sorted(each.values())[: math.ceil(len(each) / 10)]),
        harmed=sum(each[client] < plain[client] for client in both) / len(both) if both else math.nan,
        ms_per_batch=1000 * costs.seconds / costs.slots,
        bytes_per_slot=(costs.bytes_up + costs.bytes_down) / costs.slots,
        stepped_in=math.nan if costs.stepped_in is None else costs.stepped_in / costs.slots,
    )
