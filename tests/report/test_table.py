"""What phases send, from the store of whole tiny runs."""

import pytest

import battery
from acclimate import params, trees
from acclimate.errors import PhaseFailed
from acclimate.experiment.reader import parse
from acclimate.experiment.run import STORE, run
from acclimate.report.table import PhaseTraffic, table
from acclimate.report.text import text, traffic
from acclimate.store.database import Store
from acclimate.training.fedavg import FedAvg

D_RATES = 23  # of ShallowCNN: 15 parameter tensors and 8 running statistics


def report(runs, **more):
    experiment = parse(battery.tiny(**more))
    run(experiment, runs)
    store = Store(runs / STORE)
    found = store.find(experiment.run_name)
    made = table(found)
    store.close()
    return experiment, found, made


def model_bytes(experiment):
    people = experiment.scenario.made.build(0)
    net = experiment.model.build(people)(None)
    return trees.nbytes(params.of(net))


def test_atp_sends_the_model_once_and_then_rates_only(tmp_path):
    """§4: D + 2 T d numbers; here T = 4 rounds of d = 23 rates in four bytes each, down and up."""
    phases = [{"name": "atp", "rounds": 4, "cohort": 2}]
    batch, online = (
        {"name": n, "phases": phases, "adapter": {"name": "atp", "online": n == "on"}} for n in ("ba", "on")
    )
    experiment, found, made = report(tmp_path, systems=[batch, online], seeds=[0, 1])
    model = model_bytes(experiment)
    training, rates = made.phases  # shared by both systems and by all seeds
    assert training == PhaseTraffic("fedavg", rounds=2, down=model, up=model, before=0, replies=12)
    assert rates == PhaseTraffic("atp", rounds=4, down=4 * D_RATES, up=4 * D_RATES, before=model, replies=16)
    assert rates.total == model + 2 * 4 * D_RATES * 4
    assert traffic(rates) in text(made, found).replace("\n", " ")
    assert "92 B down and 92 B up per client and round" in traffic(rates)


def test_phases_that_send_different_things_are_apart(tmp_path):
    systems = [
        {"name": kind, "phases": [{"name": "atp", "rounds": 1, "modules": kind}], "adapter": "atp"}
        for kind in ("params", "stats")
    ]
    phases = report(tmp_path, systems=systems)[2].phases
    assert sorted((phase.name, phase.down) for phase in phases[1:]) == [("atp", 4 * 8), ("atp", 4 * 15)]


def test_sent_once_counts_what_the_adapter_needs_and_nothing_else(tmp_path):
    """Rates that an earlier phase learnt are nothing to a system without adaptation."""
    shared = [{"name": "fedavg", "rounds": 1}, {"name": "atp", "rounds": 1}, {"name": "fedavg", "rounds": 1}]
    experiment, _, made = report(tmp_path, phases=shared, systems=["none", {"name": "moved", "adapter": "atp"}])
    sent = {line.system: line.knowledge_bytes for line in made.lines}
    assert sent == {"none": model_bytes(experiment), "moved": model_bytes(experiment) + 4 * D_RATES}
    assert [phase.name for phase in made.phases] == ["fedavg", "atp", "fedavg"]


def test_replies_that_were_left_out_are_told(tmp_path, monkeypatch):
    """Client 1 of three diverges in the second of two rounds, on two seeds: 2 of 12 replies."""
    update = FedAvg.client_update

    def diverging(self, server, state, client):
        reply, after = update(self, server, state, client)
        bad = client.id == 1 and server.round == 1
        broken = {name: tensor * float("nan") for name, tensor in reply.update.items()}
        return (reply._replace(update=broken) if bad else reply), after

    monkeypatch.setattr(FedAvg, "client_update", diverging)
    monkeypatch.setenv("ACCLIMATE_CACHE", str(tmp_path / "cache"))
    _, found, made = report(tmp_path, systems=["none"], seeds=[0, 1])
    (phase,) = made.phases
    assert (phase.replies, phase.left_out) == (12, 2)
    assert made.plain()["phases"][0]["left_out"] == 2
    assert "2 of 12 replies could not be used or never came" in " ".join(text(made, found).split())


def test_a_training_that_failed_is_no_result(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCLIMATE_CACHE", str(tmp_path / "cache"))
    phases = [{"name": "fedavg", "rounds": 2, "local": {"lr": 1e30}}]
    with pytest.raises(PhaseFailed, match="in none of its 2 rounds"):
        report(tmp_path, phases=phases)
    store = Store(tmp_path / STORE)
    assert store._db.execute("SELECT count(*) FROM row WHERE phase = 'test'").fetchone() == (0,)
    store.close()
