"""What clients send is looked at before it counts: every phase and every adapter of the catalog declares it."""

import math
from dataclasses import replace

import pytest
import torch

import battery
from acclimate import trees
from acclimate.contracts import Replies, Reply
from acclimate.engine.checkpoint import Checkpoint
from acclimate.engine.door import reply_fault
from acclimate.engine.messages import Test
from acclimate.errors import ConfigError
from acclimate.experiment.catalog import ADAPTERS, PHASES
from acclimate.trees import Form
from liars import LIAR, SHAPES, Tampered

WEIGHTS = {
    "negative": -1.0,
    "infinite": math.inf,
    "not a number": math.nan,
    "text": "10",
    "true": True,
    "too heavy": 1e13,
    "too long for a float": 10**400,
}
METRICS = {
    "too long for a file": {"loss": 10**30},
    "too long for a float": {"loss": -(10**400)},
    "no name that can be written": {"\ud800": 1.0, "loss": 1.0},
    "not a number": {"loss": math.nan},
    "infinite": {"loss": math.inf},
}


@pytest.mark.parametrize("name", PHASES)
def test_phase_declares_what_its_honest_replies_look_like(name):
    told = []
    outcome = battery.run_phase(name, rounds=2, cohort="all", progress=lambda done, total, text: told.append(text))
    assert not [row for row in outcome.checkpoint.metrics() if row[2] == "left_out"], told


@pytest.mark.parametrize("name", PHASES)
@pytest.mark.parametrize("how", SHAPES)
def test_phase_leaves_out_a_reply_that_looks_wrong(name, how):
    changes = []

    def change(reply):
        changed = SHAPES[how](reply.update)
        try:
            changes.append(not trees.equal(changed, reply.update))
        except TypeError:
            changes.append(True)
        return reply._replace(update=changed)

    outcome = battery.run_phase(name, rounds=1, cohort="all", executor=Tampered(change))
    left_out = {client for _, client, metric, _ in outcome.checkpoint.metrics() if metric == "left_out"}
    assert left_out == ({LIAR} if changes[0] else set())  # some have nothing to send
    if changes[0]:
        assert outcome.checkpoint.client(LIAR) is None  # its own state stays as it was
        assert trees.finite(outcome.server)


@pytest.mark.parametrize("how", WEIGHTS)
def test_reply_with_an_impossible_weight_is_left_out(how):
    outcome = battery.run_phase(
        "fedavg", rounds=1, cohort="all", executor=Tampered(lambda reply: reply._replace(weight=WEIGHTS[how]))
    )
    assert [c for _, c, metric, _ in outcome.checkpoint.metrics() if metric == "left_out"] == [LIAR]


def test_mean_of_the_heaviest_replies_is_finite():
    """Of 1.7e308 each would be finite alone, and so would its sum: only two together are not."""
    update, replies = torch.tensor([0.5, -0.5]), Replies()
    assert reply_fault(Form(update), Reply(update, 1.7e308)) == "a weight that is no number from 0 to 1e+12"
    for client in range(2):
        assert reply_fault(Form(update), Reply(update, 1e12)) is None
        replies.add(client, Reply(update, 1e12))
    assert torch.equal(replies.mean(), update)


@pytest.mark.parametrize("how", METRICS)
def test_reply_with_impossible_metrics_is_left_out(how):
    outcome = battery.run_phase(
        "afl", rounds=1, cohort="all", executor=Tampered(lambda reply: reply._replace(metrics=METRICS[how]))
    )
    assert [c for _, c, metric, _ in outcome.checkpoint.metrics() if metric == "left_out"] == [LIAR]


@pytest.mark.parametrize("update", [{}, {"w": torch.tensor(math.nan)}])
def test_client_that_diverges_is_no_liar_for_its_loss(update):
    """It keeps its model to itself, or its update is left out where it is added up: either way as it always was."""
    assert reply_fault(Form(update), Reply(update, 1.0, {"loss": math.nan})) is None


@pytest.mark.parametrize("update", [{"w": b"bytes"}, {None: torch.ones(1)}], ids=["bytes", "a key that is none"])
def test_update_that_is_no_nest_is_left_out(update):
    outcome = battery.run_phase(
        "fedavg", rounds=1, cohort="all", executor=Tampered(lambda reply: reply._replace(update=update))
    )
    assert [c for _, c, metric, _ in outcome.checkpoint.metrics() if metric == "left_out"] == [LIAR]


@pytest.mark.parametrize("reply", [None, (), "reply", Reply({}, 1.0, {"loss": "low"}), Reply({}, 1.0, None)])
def test_what_is_no_reply_is_left_out(reply):
    outcome = battery.run_phase("fedavg", rounds=1, cohort="all", executor=Tampered(lambda honest: reply))
    assert [c for _, c, metric, _ in outcome.checkpoint.metrics() if metric == "left_out"] == [LIAR]


def test_left_out_client_is_named_with_the_reason():
    told = []
    change = Tampered(lambda reply: reply._replace(update=SHAPES["ones(1) for every tensor"](reply.update)))
    battery.run_phase("fedavg", rounds=1, executor=change, cohort="all", progress=lambda *step: told.append(step[2]))
    assert f"left out: 1 (client {LIAR}: ['conv1.weight'] is float32 [1], expected float32 [" in told[0]


def test_left_out_client_gives_the_result_of_a_round_without_it():
    with_liar = battery.run_phase(
        "fedavg", rounds=1, cohort="all", executor=Tampered(lambda reply: reply._replace(update="model"))
    )
    people = battery.population()
    rest = {id: held for id, held in people.source.items() if id != LIAR}
    without = battery.run_phase("fedavg", rounds=1, cohort="all", people=replace(people, source=rest))
    assert with_liar.checkpoint.server(1) == without.checkpoint.server(1)


def test_phase_resumes_after_a_reply_that_was_left_out(tmp_path):
    change = Tampered(lambda reply: reply._replace(update="model"))
    whole = battery.run_phase("scaffold", rounds=3, cohort="all", executor=change)
    saved = Checkpoint(tmp_path / "phase.sqlite")
    battery.run_phase("scaffold", rounds=1, cohort="all", executor=change, checkpoint=saved)
    resumed = battery.run_phase("scaffold", rounds=3, cohort="all", executor=change, checkpoint=saved)
    assert resumed.checkpoint.server(3) == whole.checkpoint.server(3)


# ---- uploads ----


def exchanged(name, **more):
    """What comes of a test with FedAvg; who shares nothing has no upload that could look wrong."""
    try:
        return list(battery.run_test(name, "fedavg", **more))
    except ConfigError as error:
        if "shares nothing" not in str(error):
            raise
        pytest.skip(f"{name} shares nothing")


def left_out(commits):
    return {s.client for commit in commits for s in commit.scores if "left_out" in s.values}


@pytest.mark.parametrize("name", ADAPTERS)
def test_adapter_declares_what_its_honest_uploads_look_like(name):
    commits = exchanged(name)
    assert left_out(commits) == set()
    assert any("bytes_down" in s.values for commit in commits for s in commit.scores)


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("how", SHAPES)
def test_upload_that_looks_wrong_is_set_aside_and_gets_no_download(name, how):
    executor = Tampered(lambda upload: upload._replace(params=SHAPES[how](upload.params)))
    commits = exchanged(name, executor=executor)
    assert left_out(commits) == {executor.victim()}
    assert not [s for c in commits for s in c.scores if s.client == executor.victim() and "bytes_down" in s.values]


IMPLAUSIBLE = {
    "not finite": lambda u: u._replace(params=trees.transform(lambda t: t * math.nan, u.params)),
    "times 1e30": lambda u: u._replace(params=trees.transform(lambda t: t * 1e30, u.params)),
    "times 100": lambda u: u._replace(params=trees.transform(lambda t: t * 100, u.params)),
    "negative variances": lambda u: u._replace(
        params={n: -t - 1 if n.endswith("running_var") else t for n, t in u.params.items()}
    ),
    "negative weight": lambda u: u._replace(weight=-5.0),
    "more images than a batch": lambda u: u._replace(weight=1e6),
    "of somebody else": lambda u: u._replace(client=u.client + 1),
    "of another slot": lambda u: u._replace(slot=u.slot + 1),
    "of a client that is a tensor": lambda u: u._replace(client=torch.tensor(u.client)),
    "of a client that is a fraction": lambda u: u._replace(client=float(u.client)),
    "no upload": lambda u: "upload",
    "another signature": lambda u: u._replace(signature=torch.ones(3)),
    "loud signature": lambda u: u._replace(signature=u.signature * 1e6),
}


@pytest.mark.parametrize("how", IMPLAUSIBLE)
def test_implausible_upload_changes_nothing_for_others(how):
    executor = Tampered(IMPLAUSIBLE[how])
    commits = list(battery.run_test("bn-adapt", "tsa", executor=executor))
    assert left_out(commits) == {executor.victim()}


@pytest.mark.parametrize("weight", [math.inf, 1.7e308, 10**400], ids=["infinite", "too heavy", "too long"])
def test_number_of_images_is_bounded_where_one_batch_is_the_whole_stream(weight):
    executor = Tampered(lambda upload: upload._replace(weight=weight))
    commits = battery.run_test("bn-adapt", "fedavg", executor=executor, test=Test(batch_size="all"))
    assert left_out(commits) == {executor.victim()}


@pytest.mark.parametrize("value", [-0.1, 1.1])
def test_probability_outside_its_range_is_set_aside(value):
    executor = Tampered(lambda u: u._replace(params={"prior": torch.full_like(u.params["prior"], value)}))
    assert left_out(battery.run_test("em", "fedavg", executor=executor)) == {executor.victim()}
