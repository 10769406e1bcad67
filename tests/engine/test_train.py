from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn
from torch.func import functional_call

import battery
from acclimate import trees
from acclimate.contracts import Algorithm, Replies, Reply
from acclimate.engine.checkpoint import Checkpoint
from acclimate.engine.executor import Serial, chunks
from acclimate.engine.known import Known
from acclimate.engine.messages import Lost
from acclimate.engine.train import sample
from acclimate.errors import ConfigError, PhaseFailed
from acclimate.models.extended import Extended, is_extra, plain
from acclimate.models.head import head_of


@dataclass(frozen=True)
class Counting(Algorithm):
    """Adds up what clients send; those in `bad` send values that are not finite."""

    exports = ("model", "visits")
    personal = ("visits",)

    bad: tuple = ()

    def init(self, task):
        return {"total": torch.zeros(1), "rounds": 0}

    def client_init(self, client):
        return {"visits": 0}

    def client_update(self, message, state, client):
        value = float("nan") if client.id in self.bad else float(client.id)
        return Reply({"id": torch.tensor([value])}, 1.0, {"loss": 1.0}), {"visits": state["visits"] + 1}

    def expects(self, message, task):
        return {"id": torch.zeros(1)}

    def server_update(self, server, replies):
        return {"total": server["total"] + replies.mean()["id"], "rounds": server["rounds"] + 1}

    def export(self, released, state, client):
        return {"model": released, "visits": state}


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


run = battery.run_algorithm


def known(outcome, client=0):
    return Known([outcome]).of(client)


def test_train_leaves_out_replies_that_are_not_finite_and_names_them():
    told = []
    outcome = run(Counting(bad=(1, 2)), progress=lambda done, total, text: told.append(text))
    assert known(outcome, 0)["model"]["total"].item() == 1.5  # clients 0 and 3
    assert [(c, v) for _, c, name, v in outcome.checkpoint.metrics() if name == "left_out"] == [(1, 1.0), (2, 1.0)]
    assert "left out: 2 (clients 1, 2: values that are not finite)" in told[0]


def test_train_keeps_the_state_of_a_client_that_was_left_out():
    outcome = run(Counting(bad=(1,)), rounds=2)
    assert known(outcome, 0)["visits"] == {"visits": 2}
    assert known(outcome, 1)["visits"] is None


def test_train_keeps_the_server_state_when_nobody_is_left():
    """One client a round: only those who send something finite count."""
    outcome = run(Counting(bad=(1, 2)), rounds=8, cohort=1)
    drawn = [sample(0, 0, round, (0, 1, 2, 3), 1)[0] for round in range(1, 9)]
    good = [id for id in drawn if id in (0, 3)]
    assert 0 < len(good) < 8
    assert known(outcome)["model"] == {"total": torch.tensor([float(sum(good))]), "rounds": len(good)}


def test_train_in_which_no_reply_could_ever_be_used_is_an_error(tmp_path):
    path = tmp_path / "phase.sqlite"
    for _ in range(2):  # also when it is found in the cache
        with pytest.raises(PhaseFailed, match=r"Counting: in none of its 2 rounds.*smaller learning rate"):
            run(Counting(bad=(0, 1, 2, 3)), rounds=2, checkpoint=Checkpoint(path))


def test_train_gives_algorithms_that_keep_replies_every_one_of_them():
    assert known(run(Median()), 0)["model"]["total"].item() == 1.0  # lower median of 0, 1, 2, 3


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
        return known(run(Drawing(), rounds=rounds, cohort=cohort), 0)["model"]["total"].item()

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
    assert known(run(Counting(), rounds=3, checkpoint=saved, executor=executor)) == known(outcome)
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
    outcome = run(Weighing(), make=build)
    assert known(outcome, 0)["model"]["total"].item() == sum(sizes.values()) / 4


def test_train_refuses_to_average_different_models():
    build = replace(battery.build("mlp"), variants=({"hidden": (4,)}, {"hidden": (8, 8)}))

    class Own(Weighing):
        def client_update(self, message, state, client):
            return Reply({k: v for k, v in client.task.build(client.id).state_dict().items()}), state

    with pytest.raises(PhaseFailed, match="of no use: 4"):  # at the door: none is what the message leads one to expect
        run(Own(), make=build)


@dataclass(frozen=True)
class Late(Counting):
    """Draws after it has asked for its net, which may have to be built just then."""

    def client_update(self, message, state, client):
        client.net(client.task.start())
        return Reply({"id": torch.randn(1)}), {"visits": torch.rand(1)}

    def broadcast(self, server, id):
        return server, torch.rand(2) + id

    def export(self, released, state, client):
        return {"model": released, "visits": (state, torch.rand(1))}


def bits(outcome):
    """All that came of a phase, for everybody."""
    saved = outcome.checkpoint
    clients = {id: saved.client(id) for id in battery.population().source}
    return saved.server(outcome.round), clients, [trees.dump(known(outcome, id)) for id in clients]


def test_train_building_a_net_eats_no_draws(two_workers, tmp_path):
    """The first client of each process has its net built in the middle of its call."""
    whole = run(Late(), rounds=3)
    assert bits(run(Late(), rounds=3, executor=two_workers)) == bits(whole)
    path = tmp_path / "phase.sqlite"
    run(Late(), rounds=1, checkpoint=Checkpoint(path)).checkpoint.close()
    assert bits(run(Late(), rounds=3, checkpoint=Checkpoint(path))) == bits(whole)


def test_train_seeds_the_calls_of_the_server_for_each_client():
    sent = []

    class Seeing(Late):
        def client_update(self, message, state, client):
            sent.append((client.id, message[1].tolist()))
            return super().client_update(message, state, client)

    for _ in range(2):
        torch.rand(3)
        run(Seeing(), rounds=2)
    assert sent[:8] == sent[8:]
    assert len({tuple(draw) for _, draw in sent}) == 8  # four clients, two rounds


class Losing(Serial):
    """Stands in for an executor that reaches other machines: client 2 never answers."""

    def run(self, chunks, homes=None, count=None):
        for index, chunk in enumerate(chunks):
            done = [(part, Lost("gone") if part.id == 2 else self._doing.do(part)) for part in chunk]
            yield index, self._doing.fold(done)


def test_train_goes_on_without_a_client_that_is_lost():
    told = []
    outcome = run(Counting(), executor=Losing(), progress=lambda done, total, text: told.append(text))
    assert known(outcome)["model"]["total"].item() == pytest.approx(4 / 3)  # clients 0, 1 and 3
    assert [(c, name) for _, c, name, _ in outcome.checkpoint.metrics() if name == "lost"] == [(2, "lost")]
    assert "never answered: 1 (client 2: gone)" in told[0]


def test_replies_of_weight_zero_are_replies():
    replies = Replies()
    replies.add(0, Reply(torch.tensor(2.0), 0.0))
    replies.add(1, Reply(torch.tensor(5.0), 3.0))
    assert (len(replies), replies.left_out, replies.mean().item()) == (2, [], 5.0)
    replies.add(2, Reply(torch.tensor(5.0), -1.0))
    replies.add(3, Reply(torch.tensor(5.0), float("inf")))
    assert replies.left_out == [2, 3]


@dataclass(frozen=True)
class TwoHeads(Counting):
    """Extends the net by a head, which its model carries or not."""

    carries: bool = True
    head: str = "second"

    def extend(self, net):
        return Extended(net, **{self.head: nn.Linear(2, 3)})

    def init(self, task):
        return {"w": task.start(), "total": torch.zeros(1), "rounds": 0}

    def client_update(self, message, state, client):
        net = client.net(message["w"])
        assert [name for name in net.state_dict() if is_extra(name)] == [n for n in message["w"] if is_extra(n)]
        return super().client_update(message, state, client)

    def server_update(self, server, replies):
        return {**server, "rounds": server["rounds"] + 1}

    def export(self, released, state, client):
        model = released["w"]
        return {"model": model if self.carries else plain(model), "visits": state}


def test_extensions_are_drawn_after_the_plain_net_and_named_beside_it():
    plain_start = trees.load(battery.run_phase("fedavg", rounds=1, keep_every=1).checkpoint.server(0)).w
    seeded = trees.load(run(TwoHeads(), seed=5).checkpoint.server(1))["w"]
    assert {name for name in seeded if is_extra(name)} == {"extra.second.weight", "extra.second.bias"}
    assert trees.equal(plain(seeded), plain_start)


@pytest.mark.parametrize("carries", [True, False])
def test_extensions_accumulate_over_phases_and_fill_in_what_a_model_lacks(carries):
    first = run(TwoHeads(carries=carries))
    second = run(TwoHeads(head="third"), position=1, known=Known([first]))
    w, before = trees.load(second.checkpoint.server(1))["w"], trees.load(first.checkpoint.server(1))["w"]
    names = [name for name in w if is_extra(name)]
    assert names == [f"extra.{head}.{kind}" for head in ("second", "third") for kind in ("weight", "bias")]
    assert trees.equal(plain(w), plain(before))
    kept = trees.equal(w["extra.second.weight"], before["extra.second.weight"])
    assert kept == carries  # a model that does not carry it leaves a fresh one


def test_an_extended_sequential_runs_as_the_plain_one():
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    longer = Extended(Extended(net, a=nn.Linear(2, 5)), b=nn.Dropout())
    x = torch.rand(3, 1, 2, 2)
    assert torch.equal(longer(x), net(x))
    assert list(longer.state_dict()) == ["1.weight", "1.bias", "extra.a.weight", "extra.a.bias"]
    assert head_of(longer) == ("1", net[1])
    swapped = {name: torch.zeros_like(tensor) for name, tensor in longer.state_dict().items()}
    assert not functional_call(longer, swapped, (x,)).any()
    longer.eval()
    assert not net.training
    assert not longer.extra["b"].training
