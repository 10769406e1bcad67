"""What a node says of a client's part of a stream: what an honest one can say, and nothing else."""

import math

import pytest
import torch

import battery
from acclimate import trees
from acclimate.contracts import Reply
from acclimate.engine.client import Clients
from acclimate.engine.known import Elsewhere, Exports
from acclimate.engine.messages import Alone, Begin, Figure, GoOn, Paused, Score, Stretch, Test, Took
from acclimate.engine.tester import Trial
from acclimate.engine.trainee import Training
from acclimate.flower.sound import fault
from acclimate.trees import Parcel

PEOPLE = battery.population()
STREAM = PEOPLE.streams[0]
WHO = (STREAM.client, STREAM.name)
SLOTS = STREAM.slots(7)  # of 7, 7 and 6 images
HERE = Parcel(Elsewhere("00"))
DRAWN = trees.dump({"e": torch.ones(2)})


def score(slot, **values):
    counted = {"correct": 3.0, "count": 6.0, "seconds": 0.1, **values}
    return Score(*WHO, slot, SLOTS[slot].shift, counted)


def whole(**values):
    return Score(*WHO, -1, "", {"correct/1": 3.0, "count/1": 12.0, "count/3": 8.0, **values})


def found(task, at, result, **test):
    trial = Trial(None, (WHO,), None, Test(batch_size=7, **test), 0, Exports())
    return fault(trial, Clients(PEOPLE), task, at, result)


ALONE, STARTED, ON = Alone(0, None, 1.0), Begin(0, None, 1), GoOn(0, None, 2)
ENDED = Paused(3, None, [[3], [20]])
# The task, the slot its client stands at, and an answer.
HONEST = {
    "alone": (ALONE, 0, Stretch(2, False, [score(0), score(1)], [Figure(*WHO, 1, DRAWN)], paused=Paused(2, HERE, []))),
    "alone to the end": (ALONE, 1, Stretch(3, True, [score(1), score(2), whole()], [], paused=ENDED)),
    "begun": (STARTED, 0, Stretch(1, False, [score(0)], [], upload=Parcel({}), start=Parcel({}))),
    "begun where it stops": (STARTED, 1, Stretch(1, False, [], [])),
    "gone on": (ON, 1, Stretch(2, False, [score(1, left_out=1.0, stepped_in=0.0)], [])),
    "gone on to the end": (ON, 1, Stretch(3, True, [score(1), score(2), whole()], [], paused=ENDED)),
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_answer_is_believed(name):
    assert found(*HONEST[name]) is None


def test_losses_are_believed_where_they_are_measured():
    task, at, answer = HONEST["gone on"]
    measured = answer._replace(scores=[score(1, loss=12.5)])
    assert found(task, at, measured, convergence=True) is None
    assert found(task, at, measured) == "scores that cannot be this client's"


def first(**changes):
    """A change of the first score, and of what it holds."""
    values = changes.pop("values", {})

    def change(answer):
        one = answer.scores[0]
        return answer._replace(scores=[one._replace(**changes, values={**one.values, **values}), *answer.scores[1:]])

    return change


def drawn(*figures):
    return lambda answer: answer._replace(figures=[Figure(*WHO, 0, DRAWN)._replace(**figure) for figure in figures])


def paused(**changes):
    return lambda answer: answer._replace(paused=answer.paused._replace(**changes))


SLOT, SCORES, FIGURES, PLACE = "a slot", "scores", "figures", "no place where it stands"
LIES = [
    (SLOT, "alone", {"slot": 0}),
    (SLOT, "alone", {"slot": 10**30}),
    (SLOT, "alone", {"slot": True}),
    (SLOT, "alone", {"slot": torch.tensor(2)}),
    (SLOT, "alone", {"ended": True}),
    (SLOT, "alone to the end", {"ended": False}),
    (SLOT, "begun", {"slot": 0, "scores": []}),
    (SLOT, "gone on", {"slot": 1, "scores": []}),
    (SLOT, "gone on", {"slot": 10**7}),
    (SCORES, "alone", {"scores": []}),
    (SCORES, "alone", {"scores": [score(0), score(0)]}),
    (SCORES, "alone", {"scores": [score(0), score(1), score(1)]}),
    (SCORES, "alone", {"scores": [score(1), score(0)]}),
    (SCORES, "alone", {"scores": [score(0), None]}),
    (SCORES, "alone to the end", {"scores": [score(1), score(2)]}),
    (SCORES, "gone on", {"scores": [score(0)]}),  # that was scored before
    (SCORES, "alone", first(slot=99)),
    (SCORES, "alone", first(slot=torch.tensor(0))),
    (SCORES, "alone", first(slot=0.0)),
    (SCORES, "alone", first(client=STREAM.client + 1)),
    (SCORES, "alone", first(shift="\ud800")),
    (SCORES, "alone", first(values={"\ud800": 1.0})),
    (SCORES, "alone", first(values={"bytes_up": 1.0})),
    (SCORES, "alone", first(values={"correct": 7.0})),
    (SCORES, "alone", first(values={"correct": 2e9, "count": 1e9})),
    (SCORES, "alone", first(values={"correct": -1.0})),
    (SCORES, "alone", first(values={"count": math.nan})),
    (SCORES, "alone", first(values={"correct": 10**30})),
    (SCORES, "alone", first(values={"seconds": math.inf})),
    (SCORES, "alone", first(values={"seconds": 1e300})),
    (SCORES, "alone", first(values={"left_out": 2.0})),
    (SCORES, "alone to the end", {"scores": [score(1), score(2), whole(count=1.0)]}),
    (SCORES, "alone to the end", {"scores": [score(1), score(2), whole(**{"count/10": 1.0})]}),
    (SCORES, "alone to the end", {"scores": [score(1), score(2), whole(**{"count/2": 1.0})]}),  # the 21st image
    (SCORES, "alone to the end", {"scores": [score(1), score(2), whole(**{"correct/0": 1.0})]}),
    (FIGURES, "alone", drawn({"slot": 10**30})),
    (FIGURES, "alone", drawn({"slot": 2})),
    (FIGURES, "alone", drawn({"slot": -1})),
    (FIGURES, "alone", drawn({"slot": 1}, {"slot": 0})),
    (FIGURES, "alone", drawn({}, {})),
    (FIGURES, "alone", drawn({"client": -1})),
    (FIGURES, "alone", drawn({"values": b"rubbish"})),
    (FIGURES, "alone", drawn({"values": list(trees.dump({}))})),
    (FIGURES, "alone", drawn({"values": trees.dump({"e": "text"})})),
    (FIGURES, "alone", drawn({"values": trees.dump({"asked": torch.ones(1)})})),
    ("an upload", "begun", {"upload": 1}),
    (PLACE, "alone", {"paused": None}),
    (PLACE, "alone to the end", {"paused": None}),
    (PLACE, "gone on", {"paused": Paused(2, HERE, [])}),
    (PLACE, "alone", paused(slot=1)),
    (PLACE, "alone", paused(slot=torch.tensor(2))),
    (PLACE, "alone", paused(state=None)),
    (PLACE, "alone", paused(state=Parcel({"w": torch.ones(2)}))),
    (PLACE, "alone", paused(tally=[[10**30]])),
    (PLACE, "alone to the end", paused(state=HERE)),
]


@pytest.mark.parametrize(("why", "name", "lie"), LIES)
def test_a_lie_about_a_stream_is_found(why, name, lie):
    task, at, answer = HONEST[name]
    told = found(task, at, answer._replace(**lie) if isinstance(lie, dict) else lie(answer))
    assert told is not None
    assert told.startswith(why)


@pytest.mark.parametrize("size", [-1, 10**30, 1.5, True, None])
def test_a_size_that_cannot_be_is_found(size):
    work, took = Training(None, None, 0, 0, ()), Took(Reply({}), None, 100, 100)
    assert fault(work, Clients(PEOPLE), None, 0, took) is None
    assert fault(work, Clients(PEOPLE), None, 0, took._replace(bytes_up=size)) == "sizes that are no numbers"
