"""What phases send, from the store of whole tiny runs."""

import battery
from acclimate import params, trees
from acclimate.experiment.reader import parse
from acclimate.experiment.run import STORE, run
from acclimate.report.table import PhaseTraffic, table
from acclimate.report.text import text, traffic
from acclimate.store.database import Store

D_RATES = 23  # of ShallowCNN: 15 parameter tensors and 8 running statistics


def report(runs, **more):
    experiment = parse(battery.tiny(**more))
    run(experiment, runs)
    store = Store(runs / STORE)
    (found,) = [r for r in store.runs() if r["name"] == experiment.run_name]
    made = table(store, found)
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
    assert training == PhaseTraffic("fedavg", rounds=2, down=model, up=model, before=0)
    assert rates == PhaseTraffic("atp", rounds=4, down=4 * D_RATES, up=4 * D_RATES, before=model)
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
