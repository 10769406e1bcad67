"""Clients that train alone."""

import torch

import battery
import toys
from acclimate import trees
from acclimate.engine.known import Known
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import FedAvg
from acclimate.training.fedavgm import FedAvgM
from acclimate.training.fedper import FedPer
from acclimate.training.local import Local

SGD = LocalSGD(lr=1.0)


def test_local_of_one_client_is_the_phase_itself():
    """Two rounds, so that what the phase remembers on the server (a momentum) matters."""
    client = toys.client(toys.Fixed([1.0], [0]))
    for of in (FedAvg(local=SGD), FedAvgM(local=SGD), FedPer(local=SGD)):
        shared, alone = (toys.play(algorithm, [client]) for algorithm in (of, Local(of)))
        shared = toys.play(of, [client], shared.server, shared.states)
        alone = toys.play(Local(of), [client], alone.server, alone.states)
        assert trees.equal(alone.states[0].server, shared.server)
        assert trees.equal(alone.states[0].own, shared.states[0])
        assert alone.server == 2


def test_local_clients_do_not_meet():
    """w = 0 and p = ½, so at rate 1 a client with x = 1, y = 0 goes to (½, −½) and one with y = 1 to (−½, ½)."""
    clients = [toys.client(toys.Fixed([1.0], [y]), id=y) for y in (0, 1)]
    algorithm = Local(FedAvg(local=SGD))
    played = toys.play(algorithm, clients)
    models = [algorithm.export(played.server, played.states[y], y)["model"]["1.weight"] for y in (0, 1)]
    torch.testing.assert_close(models[0], torch.tensor([[0.5], [-0.5]]))
    torch.testing.assert_close(models[1], torch.tensor([[-0.5], [0.5]]))
    assert all(reply.update == {} for reply in played.replies.values())


def test_local_has_nothing_for_whoever_never_took_part():
    assert Local().export(torch.tensor(0.0), None, 7) == {}


def test_local_starts_from_the_model_of_this_client():
    """Even one that an earlier phase made for it alone."""
    first = battery.run_phase("fedper", rounds=1, cohort="all")
    known = Known([first])
    after = battery.run_algorithm(Local(FedAvg(local=LocalSGD(lr=1e-9))), known=known, position=1, seed=5)
    both = Known([first, after])
    for client in battery.population().source:
        before, now = known.of(client)["model"], both.of(client)["model"]
        learnt = [name for name in now if name.endswith("weight")]
        assert all(torch.allclose(now[name], before[name], rtol=0, atol=1e-5) for name in learnt)


def test_local_leaves_out_what_is_not_finite():
    client = toys.client(toys.Fixed([float("nan")], [0]))
    played = toys.play(Local(), [client])
    assert played.states[0].server.w["1.weight"].isfinite().all()
