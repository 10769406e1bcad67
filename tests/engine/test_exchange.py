"""Exchanges in which clients are absent, late or at different rates."""

from dataclasses import dataclass, replace

import pytest
import torch

import battery
from acclimate import trees
from acclimate.adapters.bn_adapt import BNAdapt
from acclimate.contracts import AdapterRecipe, Aggregator, Mix, Upload
from acclimate.engine import exchange
from acclimate.engine.evaluate import Test
from acclimate.engine.exchange import bounded, keep, kept_every
from acclimate.engine.roster import Member
from acclimate.scenarios.availability import ALWAYS, AWAY, HERE, LATE, Availability

SOME = Availability(probability=0.6, burst=2.0, late=0.3, delay=2, periods=(1, 1, 2))


def people(availability):
    return replace(battery.population(), availability=availability)


@dataclass(frozen=True)
class Witness(Aggregator[None]):
    """Gives everybody its own back, and draws whose uploads it got."""

    remembers = True

    def init(self, start):
        return None

    def mix(self, state, uploads, slot):
        who = torch.tensor([[upload.client, upload.slot] for upload in uploads]).view(-1, 2)
        return Mix([upload.params for upload in uploads if upload.slot == slot], None, {"who": who})


def witnessed(availability, **more):
    """What the server saw: slot → (client, slot of its upload), for the first stream."""
    found = {}
    commits = battery.run_adapter(
        AdapterRecipe(BNAdapt), Witness(), people=people(availability), test=Test(batch_size=1), seed=5, **more
    )
    for commit in commits:
        for figure in commit.figures:
            if figure.stream == battery.population().streams[0].name:
                found[figure.slot] = [tuple(pair) for pair in trees.load(figure.values)["who"].tolist()]
    return found


def test_server_has_the_last_upload_of_whoever_is_absent():
    seen = witnessed(SOME)
    name = battery.population().streams[0].name
    streams = [stream for stream in battery.population().streams if stream.name == name]
    tables = {
        stream.client: SOME.table(5, stream.client, position, len(seen)) for position, stream in enumerate(streams)
    }
    assert {kind for table in tables.values() for kind in table.tolist()} == {HERE, LATE, AWAY}
    for t, uploads in seen.items():
        expected = {}
        for client, table in tables.items():
            arrived = [s for s in range(t + 1) if table[s] == HERE or (table[s] == LATE and s + SOME.delay <= t)]
            # A late upload that a newer, punctual one has overtaken is forgotten.
            punctual = max([s for s in arrived if table[s] == HERE], default=-1)
            arrived = [s for s in arrived if s >= punctual]
            if arrived:
                expected[client] = arrived[-1]
        assert dict(uploads) == expected
        fresh = [s == t for _, s in uploads]
        assert fresh == sorted(fresh, reverse=True)  # those of this slot come first


@pytest.mark.parametrize("aggregator", ["tsa", "fedavg", "fedavgm"])
def test_full_availability_equals_the_synchronous_exchange(aggregator):
    plain = list(battery.run_test("bn-adapt", aggregator))
    full = list(battery.run_test("bn-adapt", aggregator, people=people(Availability(1.0, burst=7.0, delay=3))))
    assert battery.scores(full) == battery.scores(plain)
    assert [commit.servers for commit in full] == [commit.servers for commit in plain]
    assert [commit.figures for commit in full] == [commit.figures for commit in plain]


def test_absent_clients_predict_alone_and_send_nothing():
    never = list(battery.run_test("tent", "fedavg", people=people(Availability(probability=0.0))))
    alone = list(battery.run_test("tent", "local"))
    rows = {row[:5]: row[5] for row in battery.scores(never)}
    assert {k: v for k, v in rows.items() if k[4] == "correct"} == {
        row[:5]: row[5] for row in battery.scores(alone) if row[4] == "correct"
    }
    slots = {key[:4] for key in rows if key[2] >= 0}
    assert all(rows[*key, "missed"] == 1.0 and (*key, "bytes_up") not in rows for key in slots)


def test_late_uploads_travel_up_and_bring_nothing_back():
    late = list(battery.run_test("tent", "fedavg", people=people(Availability(late=1.0))))
    names = {name for *_, name, _ in battery.scores(late)}
    assert "bytes_up" in names
    assert "missed" in names
    assert "bytes_down" not in names


@pytest.mark.parametrize("aggregator", ["tsa", "fedavg", "ldawa"])
def test_partial_availability_resumed_equals_uninterrupted(aggregator):
    some, test = people(SOME), Test(batch_size=4)
    whole = list(battery.run_test("tent", aggregator, people=some, test=test))
    for cut in range(1, len(whole)):
        rest = list(battery.run_test("tent", aggregator, people=some, test=test, resume=battery.after(whole[:cut])))
        assert battery.scores(whole[:cut] + rest) == battery.scores(whole)


def test_partial_availability_gives_the_same_bits_with_two_workers(two_workers):
    one = battery.run_test("bn-adapt", "tsa", people=people(SOME))
    two = battery.run_test("bn-adapt", "tsa", people=people(SOME), executor=two_workers)
    assert battery.scores(one) == battery.scores(two)


def test_a_test_with_two_workers_goes_on_in_one_process_and_back(two_workers):
    some, test = people(SOME), Test(batch_size=4)
    whole = list(battery.run_test("tent", "tsa", people=some, test=test))
    done = []
    for number in range(len(whole)):
        executor = None if number % 2 else two_workers
        rest = battery.run_test("tent", "tsa", people=some, test=test, resume=battery.after(done), executor=executor)
        done.append(next(rest))
    assert battery.scores(done) == battery.scores(whole)


def test_kept_uploads_are_forgotten_when_newer_ones_have_arrived():
    def sent(slot):
        return Upload(0, slot, {}, None, 1.0)

    kept = keep({}, {}, {0: sent(0)}, 0, 3)
    assert kept == {0: [(3, sent(0))]}
    kept = keep(kept, {}, {0: sent(1)}, 1, 3)
    assert [arrival for arrival, _ in kept[0]] == [3, 4]
    assert keep(kept, {}, {}, 4, 3) == {0: [(4, sent(1))]}
    assert keep(kept, {0: sent(2)}, {}, 2, 3) == {0: [(2, sent(2))]}


def test_figures_of_many_clients_are_a_sample_of_rows_over_all_columns():
    weights = torch.eye(200, dtype=torch.float64)
    kept = bounded({"weights": weights, "clients": torch.arange(200), "columns": torch.arange(200)})
    assert kept["weights"].shape == (64, 200)
    assert kept["weights"].dtype == torch.float32
    assert kept["clients"][[0, -1]].tolist() == [0, 199]
    assert torch.equal(kept["weights"].argmax(1), kept["clients"])


@pytest.mark.parametrize(("clients", "slots", "sync"), [(60, 750, 1), (2000, 100, 1), (2000, 1000, 5), (10_000, 1, 1)])
def test_figures_of_a_stream_stay_below_a_bound(clients, slots, sync):
    every = kept_every([Member(client, "test", slots) for client in range(clients)], sync)
    matrices = slots // sync // every
    assert matrices >= 1
    assert matrices * min(clients, 64) * clients * 4 <= max(16_000_000, 64 * clients * 4)
    assert clients > 60 or every == 1  # a table of the paper's size is kept whole


def test_figures_of_some_exchanges_are_kept_and_nothing_else_changes(monkeypatch):
    def tested():
        commits = list(battery.run_test("bn-adapt", "tsa", people=people(ALWAYS)))
        name = battery.population().streams[0].name
        figures = {f.slot: f.values for c in commits for f in c.figures if f.client < 0 and f.stream == name}
        return figures, [score.values.get("correct") for commit in commits for score in commit.scores]

    whole, scores = tested()
    monkeypatch.setattr(exchange, "MOST_BYTES", 1)  # room for the matrix of one exchange
    few, same = tested()
    assert same == scores
    assert few == {max(whole): whole[max(whole)]}
    assert len(whole) > 1
