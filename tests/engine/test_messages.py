"""What passes between server and clients in a test: how many messages, who is lost, who dies, who is welcomed."""

import os
import signal
from dataclasses import dataclass, replace

import pytest
import torch

import battery
from acclimate import trees
from acclimate.adapters.none import NoAdaptation
from acclimate.adapters.tent import Tent
from acclimate.aggregators.fedavg import FedAvg
from acclimate.aggregators.local import Local
from acclimate.contracts import AdapterRecipe, Algorithm, Reply
from acclimate.engine import evaluate
from acclimate.engine.evaluate import Test
from acclimate.engine.executor import Processes, Serial
from acclimate.engine.known import Known
from acclimate.engine.messages import Alone, Begin, GoOn, Lost, Save
from acclimate.errors import MissingKnowledge, WorkerFailed
from acclimate.scenarios.availability import AWAY, Availability

TENT = AdapterRecipe(Tent, {"lr": 0.1})
SOME = Availability(probability=0.6, burst=2.0, late=0.3, delay=2)


class Recording(Serial):
    """Remembers what clients were asked."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def run(self, chunks, homes=None, count=None):
        chunks = list(chunks)
        self.asked += [task for (task,) in chunks]
        yield from super().run(chunks, homes, count)


def one_stream(**more):
    people = battery.population()
    return replace(people, streams=[s for s in people.streams if s.name == "label"], **more)


@pytest.mark.parametrize("every", [1, 3])
def test_every_exchange_is_one_message_to_each_client(every):
    """20 images of one stream in batches of two: ten slots, so exchanges in slots 0 … 9, or in 2, 5 and 8."""
    executor, people = Recording(), one_stream()
    list(
        battery.run_adapter(
            TENT, FedAvg(), people=people, test=Test(2, sync_every=every), executor=executor, seconds=1e9
        )
    )
    asked = [type(task) for task in executor.asked]
    exchanges = 10 // every
    assert asked.count(Begin) == len(people.streams)  # it brings the first upload along
    assert asked.count(GoOn) == len(people.streams) * exchanges
    assert asked.count(Save) == asked.count(Alone) == 0


@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("availability", [Availability(), SOME])
def test_exchanges_resumed_anywhere_equal_uninterrupted(every, availability):
    people, test = one_stream(availability=availability), Test(2, sync_every=every)
    whole = list(battery.run_adapter(TENT, FedAvg(), people=people, test=test))
    assert len(whole) > 2
    for cut in range(1, len(whole)):
        rest = list(battery.run_adapter(TENT, FedAvg(), people=people, test=test, resume=battery.after(whole[:cut])))
        assert battery.scores(whole[:cut] + rest) == battery.scores(whole)
        assert figures(whole[:cut] + rest) == figures(whole)


def figures(commits):
    return sorted(figure for commit in commits for figure in commit.figures)


def test_a_commit_saves_the_state_after_the_last_prediction_and_the_upload_is_made_again():
    people, test = one_stream(), Test(2, sync_every=3)
    first = next(iter(battery.run_adapter(TENT, FedAvg(), people=people, test=test)))
    assert {paused.slot for paused in first.members.values()} == {
        5
    }  # slots 3 and 4 are predicted, 5 awaits its exchange
    assert {score.slot for score in first.scores} == {0, 1, 2, 3, 4}
    executor = Recording()
    rest = battery.run_adapter(
        TENT, FedAvg(), people=people, test=test, resume=battery.after([first]), executor=executor
    )
    second = next(iter(rest))
    begun = [task for task in executor.asked if isinstance(task, Begin)]
    assert [(task.paused.slot, task.stop) for task in begun] == [(5, 5)] * 3
    assert {score.slot for score in second.scores} == {5, 6, 7}


def test_absent_clients_are_not_asked_until_they_are_back():
    people = one_stream(availability=Availability(probability=0.5, burst=3.0))
    executor = Recording()
    list(battery.run_adapter(TENT, FedAvg(), people=people, test=Test(1), executor=executor, seed=5, seconds=1e9))
    tables = [people.availability.table(5, s.client, k, 20) for k, s in enumerate(people.streams)]
    present = sum(int((table != AWAY).sum()) for table in tables)
    assert sum(isinstance(task, GoOn) for task in executor.asked) == present < 60


class Losing(Recording):
    """Reaches other machines, as it were: the answers of member 1 get lost twice."""

    lost = 0

    def run(self, chunks, homes=None, count=None):
        for index, (task,) in enumerate(chunks):
            if isinstance(task, GoOn) and task.member == 1 and self.lost < 2:
                self.lost += 1
                yield index, Lost("no answer")
            else:
                yield index, next(super().run([[task]]))[1]


def test_a_client_that_is_lost_costs_its_own_contribution_and_comes_back():
    people = one_stream()
    commits = list(battery.run_adapter(TENT, FedAvg(), people=people, test=Test(2), executor=Losing(), seconds=1e9))
    slots = {
        m: [s.slot for c in commits for s in c.scores if s.client == stream.client]
        for m, stream in enumerate(people.streams)
    }
    assert slots[0] == [*range(10), -1]
    assert slots[1] == [*range(10), -1]  # it went on where it stood
    senders = [trees.load(f.values)["weights"].shape[1] for c in commits for f in c.figures if f.client == -1]
    assert senders[:4] == [3, 2, 2, 3]


@dataclass
class Fate:
    """Kills a worker in the middle of an exchange, some times."""

    times: int
    executor: Processes
    after: int = 8

    def __call__(self, done, total, text):
        if self.times and done > self.after:
            self.times -= 1
            os.kill(self.executor._workers[0].process.pid, signal.SIGKILL)


@pytest.mark.parametrize("seconds", [0, 1e9])
def test_a_worker_that_dies_between_exchanges_changes_no_bit(seconds):
    people, test = replace(battery.population(), availability=SOME), Test(2)  # two streams
    undisturbed = list(battery.run_adapter(TENT, FedAvg(), people=people, test=test))
    with Processes(2) as executor:
        fate = Fate(2, executor, after=35)  # in the second stream
        killed = list(
            battery.run_adapter(
                TENT, FedAvg(), people=people, test=test, executor=executor, progress=fate, seconds=seconds
            )
        )
    assert fate.times == 0
    assert battery.scores(killed) == battery.scores(undisturbed)
    assert figures(killed) == figures(undisturbed)


def test_workers_that_die_again_and_again_end_the_test_with_a_message(monkeypatch):
    monkeypatch.setattr(evaluate, "MOST_LOSSES", 1)
    with Processes(2) as executor, pytest.raises(WorkerFailed, match="times in a row"):
        list(battery.run_adapter(TENT, Local(), executor=executor, progress=Fate(99, executor), seconds=1e9))


# ---- knowledge ----


@dataclass(frozen=True)
class Hosting(Algorithm):
    """A model with a shift of its own for every client; newcomers get one from their first images and public ones."""

    personal = ("model",)

    def init(self, task):
        return task.start()

    def client_init(self, client):
        return torch.zeros(1)

    def client_update(self, message, state, client):
        return Reply(message), state + client.id

    def server_update(self, server, replies):
        return replies.mean()

    def welcome(self, released, newcomer):
        assert newcomer.id not in newcomer.task.source
        (public,) = newcomer.task.public.batches(100)
        return newcomer.x.mean() + public.mean() + torch.rand(1)

    def export(self, released, state, client):
        return (
            {} if state is None else {"model": {n: t + state if n == "head.bias" else t for n, t in released.items()}}
        )


class Unwelcoming(Hosting):
    welcome = Algorithm.welcome


def with_newcomers():
    """The toy population: four source clients, two new ones with two streams each; some images are public."""
    import numpy as np

    import toys
    from acclimate.scenarios.population import Held

    people = toys.population(streams=("a", "b"))
    return replace(people, public=Held(0, np.arange(5)))


def hosted(algorithm, people, adapter=NoAdaptation, **more):
    import toys

    build = toys.build_for(people)
    outcome = battery.run_algorithm(algorithm, people=people, make=build)
    return battery.run_adapter(AdapterRecipe(adapter), known=Known([outcome]), people=people, make=build, **more)


class Showing(NoAdaptation):
    """Draws the bias of its head, and counts how often it was made."""

    made = 0

    def __init__(self, net):
        super().__init__(net)
        Showing.made += 1

    def adapt(self, x):
        self.figures["bias"] = self.net.head.bias.detach().clone()

    def moving(self):
        return {"bn": self.net.bn.weight}


def biases(commits):
    """(client, stream) → what was drawn in each slot."""
    found = {}
    for figure in sorted(figure for commit in commits for figure in commit.figures if figure.client >= 0):
        found.setdefault((figure.client, figure.stream), []).append(trees.load(figure.values)["bias"][0].item())
    return found


def test_newcomers_are_welcomed_once_for_each_stream_and_it_is_saved(monkeypatch):
    people, calls = with_newcomers(), []
    welcome = Hosting.welcome

    def counted(self, released, newcomer):
        calls.append((newcomer.id, len(newcomer.x)))
        return welcome(self, released, newcomer)

    monkeypatch.setattr(Hosting, "welcome", counted)
    whole = list(hosted(Hosting(), people, Showing, test=Test(3)))
    assert sorted(calls) == [(4, 3), (4, 3), (5, 3), (5, 3)]  # the images of the first slot only
    drawn = biases(whole)
    assert len(drawn) == 4
    assert all(len(set(values)) == 1 for values in drawn.values())  # in every slot the same
    assert len({values[0] for values in drawn.values()}) == 4
    calls.clear()
    rest = list(hosted(Hosting(), people, Showing, test=Test(3), resume=battery.after(whole[:6])))
    assert len(calls) < 4
    assert battery.scores(whole[:6] + rest) == battery.scores(whole)
    assert biases(whole[:6] + rest) == drawn


@pytest.mark.parametrize("aggregator", [None, FedAvg()])
def test_welcomed_newcomers_give_the_same_bits_with_two_workers(two_workers, aggregator):
    people = with_newcomers()
    one, two = (
        list(hosted(Hosting(), people, Showing, aggregator=aggregator, test=Test(3), executor=executor))
        for executor in (None, two_workers)
    )
    assert battery.scores(one) == battery.scores(two)
    assert biases(one) == biases(two)
    assert len(biases(one)) == 4


def test_newcomers_that_nobody_welcomes_are_an_error_before_the_first_batch():
    with pytest.raises(MissingKnowledge, match=r"client 4 has no 'model'.*or welcome newcomers"):
        next(hosted(Unwelcoming(), with_newcomers()))


def test_welcome_cannot_see_labels():
    people = with_newcomers()
    other = battery.with_labels(people, lambda y: (y + 1) % 3)
    seen, blind = (biases(hosted(Hosting(), p, Showing, test=Test(3))) for p in (people, other))
    assert seen == blind


def test_an_adapter_is_made_once_where_nothing_is_personal_and_once_for_each_client_where_it_is():
    """And once by the server, to know what honest uploads look like."""
    for phase, expected in (("scaffold", 1 + 1), ("fedper", 1 + len(one_stream().streams))):
        known = Known([battery.run_phase(phase, rounds=1, cohort="all")])
        Making.made = 0
        list(battery.run_adapter(AdapterRecipe(Making), Local(), people=one_stream(), known=known, seconds=1e9))
        assert Making.made == expected


class Making(Tent):
    made = 0

    def __init__(self, net):
        super().__init__(net)
        Making.made += 1


def test_clients_with_models_of_their_own_exchange_as_if_each_had_an_adapter_of_its_own():
    """One live net serves them all: a client's own body must be back in it whenever it is its turn."""
    known = Known([battery.run_phase("fedper", rounds=2, cohort="all")])
    people = one_stream()
    together = battery.scores(battery.run_adapter(TENT, Local(), people=people, known=known))
    apart = []
    for stream in people.streams:
        alone = replace(people, streams=[stream])
        apart += battery.scores(battery.run_adapter(TENT, Local(), people=alone, known=known))
    assert together == sorted(apart)


# ---- predictions by step ----


class Stepping(NoAdaptation):
    """Predicts all zeros, then all ones; draws what it predicted."""

    def adapt(self, x):
        self.figures["predictions"] = torch.stack([torch.zeros(len(x)), torch.ones(len(x))]).long()
        self.figures["loss"] = torch.tensor([2.0, 1.0])


def test_predictions_by_step_become_counts_where_the_labels_are():
    people = one_stream()
    commits = list(battery.run_adapter(AdapterRecipe(Stepping), people=people))
    drawn = {(f.client, f.slot): trees.load(f.values) for c in commits for f in c.figures}
    assert len(drawn) == 9
    for stream in people.streams:
        for t, slot in enumerate(stream.slots(7)):
            y = people.examples(slot.parts[0]).y
            found = drawn[stream.client, t]
            assert set(found) == {"correct", "count", "loss"}
            assert found["correct"].tolist() == [int((y == 0).sum()), int((y == 1).sum())]
            assert found["count"] == len(y)
