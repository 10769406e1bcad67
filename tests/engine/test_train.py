from dataclasses import dataclass, replace

import pytest
import torch

import battery
from acclimate import trees
from acclimate.contracts import Algorithm, Replies, Reply
from acclimate.engine.checkpoint import Checkpoint
from acclimate.engine.executor import Serial, chunks
from acclimate.engine.train import sample, train
from acclimate.errors import ConfigError


@dataclass(frozen=True)
class Counting(Algorithm):
    """Adds up what clients send; those in `bad` send values that are not finite."""

    bad: tuple = ()
    keeps_all: bool = False

    def init(self, task):
        return {"total": torch.zeros(1), "rounds": 0}

    def client_init(self, client):
        return {"visits": 0}

    def client_update(self, message, state, client):
        value = float("nan") if client.id in self.bad else float(client.id)
        return Reply({"id": torch.tensor([value])}, 1.0, {"loss": 1.0}), {"visits": state["visits"] + 1}

    def server_update(self, server, replies):
        return {"total": server["total"] + replies.mean()["id"], "rounds": server["rounds"] + 1}

    def export(self, server, state):
        return {"model": server, "visits": state}


@dataclass(frozen=True)
class Drawing(Counting):
    """Sends a draw from torch's generator."""

    def client_update(self, message, state, client):
        return Reply({"id": torch.randn(1)}), state


class Median(Counting):
    keeps = True

    def server_update(self, server, replies):
        values = torch.stack([reply.update["id"] for _, reply in replies.items()])
        return {"total": values.median(0).values, "rounds": server["rounds"] + 1}


def run(algorithm, rounds=1, **more):
    return train(algorithm, battery.population(), battery.build(), rounds=rounds, **more)


def test_train_leaves_out_replies_that_are_not_finite_and_names_them():
    told = []
    outcome = run(Counting(bad=(1, 2)), progress=lambda done, total, text: told.append(text))
    assert outcome.export(0)["model"]["total"].item() == 1.5  # clients 0 and 3
    assert [(c, v) for _, c, name, v in outcome.checkpoint.metrics() if name == "left_out"] == [(1, 1.0), (2, 1.0)]
    assert "2 (clients 1, 2)" in told[0]


def test_train_keeps_the_state_of_a_client_that_was_left_out():
    outcome = run(Counting(bad=(1,)), rounds=2)
    assert outcome.export(0)["visits"] == {"visits": 2}
    assert outcome.export(1)["visits"] is None


def test_train_keeps_the_server_state_when_nobody_is_left():
    outcome = run(Counting(bad=(0, 1, 2, 3)), rounds=2)
    assert outcome.export(0)["model"] == {"total": torch.zeros(1), "rounds": 0}


def test_train_gives_algorithms_that_keep_replies_every_one_of_them():
    assert run(Median()).export(0)["model"]["total"].item() == 1.0  # lower median of 0, 1, 2, 3


def test_replies_sum_by_weight_where_a_mean_is_not_wanted():
    """1 · 2 + 3 · 5 = 17, and the mean is 17 / 4."""
    replies = Replies()
    replies.add(0, Reply(torch.tensor(2.0), 1.0))
    replies.add(1, Reply(torch.tensor(5.0), 3.0))
    assert (replies.sum().item(), replies.mean().item()) == (17.0, 4.25)
    with pytest.raises(ValueError, match="neither a mean nor a sum"):
        Replies().sum()


def test_train_refuses_items_of_folded_replies():
    class Greedy(Counting):
        def server_update(self, server, replies):
            return replies.items()

    with pytest.raises(ValueError, match="keeps = True"):
        run(Greedy())


def test_train_draws_are_addressed_and_not_carried_on():
    def total(rounds, cohort="all"):
        return run(Drawing(), rounds=rounds, cohort=cohort).export(0)["model"]["total"].item()

    first = total(1)
    torch.rand(7)
    assert total(1) == first
    assert total(2) != 2 * first


def test_sample_is_fixed_by_its_address_and_changes_with_the_round():
    ids = list(range(100))
    drawn = [tuple(sample(0, 0, round, ids, 10)) for round in range(5)]
    assert drawn == [tuple(sample(0, 0, round, ids, 10)) for round in range(5)]
    assert len(set(drawn)) == 5
    assert all(len(set(d)) == 10 and list(d) == sorted(d) for d in drawn)


def test_train_works_the_cohort_only():
    executor = Serial()
    outcome = run(Counting(), rounds=3, cohort=2, executor=executor)
    assert executor.worked.total() == 6
    for round in (1, 2, 3):
        took_part = [c for r, c, name, _ in outcome.checkpoint.metrics() if r == round and name == "loss"]
        assert took_part == list(sample(0, 0, round, (0, 1, 2, 3), 2))


@pytest.mark.parametrize("cohort", [0, 5])
def test_train_refuses_an_impossible_cohort(cohort):
    with pytest.raises(ConfigError, match=r"1 to 4 \(or 'all'\) possible"):
        run(Counting(), cohort=cohort)


def test_chunks_depend_on_the_cohort_only():
    assert [len(c) for c in chunks(list(range(60)))] == [2] * 30
    assert [len(c) for c in chunks(list(range(5)))] == [1] * 5
    assert [i for c in chunks(list(range(100))) for i in c] == list(range(100))


def test_train_reads_nothing_but_the_last_round_of_a_checkpoint(tmp_path):
    saved = Checkpoint(tmp_path / "phase.sqlite")
    outcome = run(Counting(), rounds=3, checkpoint=saved)
    assert saved.kept() == [3]
    assert trees.load(saved.server(3))["rounds"] == 3
    executor = Serial()
    assert run(Counting(), rounds=3, checkpoint=saved, executor=executor).export(0) == outcome.export(0)
    assert executor.worked.total() == 0


def test_train_counts_bytes_up_and_down():
    metrics = {(c, name): v for _, c, name, v in run(Counting()).checkpoint.metrics()}
    assert metrics[0, "bytes_down"] == 4  # one float32
    assert metrics[0, "bytes_up"] == 4


class Weighing(Counting):
    """Replies with the number of parameters of the client's model, which is its own."""

    def client_update(self, message, state, client):
        net = client.net(client.task.build(client.id).state_dict())
        return Reply({"id": torch.tensor([float(sum(p.numel() for p in net.parameters()))])}), state


def test_train_gives_devices_of_different_kinds_their_own_model():
    build = replace(battery.build("mlp"), variants=({"hidden": (4,)}, {"hidden": (8, 8)}))
    assert [build.variant(client) for client in (None, 0, 1, 2, 3)] == [0, 0, 1, 0, 1]
    sizes = {id: sum(p.numel() for p in build(id).parameters()) for id in range(4)}
    assert sizes[0] == sizes[2] != sizes[1] == sizes[3]
    outcome = train(Weighing(), battery.population(), build, rounds=1)
    assert outcome.export(0)["model"]["total"].item() == sum(sizes.values()) / 4


def test_train_refuses_to_average_different_models():
    build = replace(battery.build("mlp"), variants=({"hidden": (4,)}, {"hidden": (8, 8)}))

    class Own(Weighing):
        def client_update(self, message, state, client):
            return Reply({k: v for k, v in client.task.build(client.id).state_dict().items()}), state

    with pytest.raises(ValueError, match="differ in structure"):
        train(Own(), battery.population(), build, rounds=1)
