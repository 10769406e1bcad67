import math

import pytest
import torch

import toys
from acclimate import trees
from acclimate.adapters.pfl_ensemble import PFLEnsemble as Adapter
from acclimate.models.build import Build
from acclimate.training.fedavg import Global
from acclimate.training.fedper import FedPer
from acclimate.training.pfl_ensemble import PFLEnsemble
from acclimate.training.pfl_sampled import PFLSampled, State

BUILD = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))
HEADS = {0: {"2.weight": torch.tensor([[1.0], [-1.0]])}, 1: {"2.weight": torch.tensor([[-3.0], [1.0]])}}
SERVER = State(Global({"1.weight": torch.ones(1, 1)}, 5), HEADS)


def clients():
    return [toys.client(toys.examples(23, seed=k), BUILD, id=k, classes=3, source=(0, 1)) for k in range(2)]


@pytest.mark.parametrize("target", [PFLSampled, PFLEnsemble])
def test_pfl_trains_as_fedper(target):
    torch.manual_seed(0)
    w = FedPer().init(clients()[0].task)
    states = {one.id: FedPer().client_init(one) for one in clients()}
    plain = toys.play(FedPer(), clients(), w, states)
    kept = toys.play(target(), clients(), State(w, {}), states)
    assert trees.equal(kept.server.body, plain.server)
    assert trees.equal(kept.states, plain.states)
    assert trees.equal(kept.server.heads, plain.states)  # the server keeps what the clients keep


def test_pfl_sampled_draws_one_of_the_heads_for_a_new_client():
    torch.manual_seed(0)
    drawn = [PFLSampled().export(PFLSampled().release(SERVER, id), None, id)["model"] for id in range(2, 22)]
    heads = [model["2.weight"].flatten().tolist() for model in drawn]
    assert {tuple(head) for head in heads} == {(1.0, -1.0), (-3.0, 1.0)}
    assert all(torch.equal(model["1.weight"], torch.ones(1, 1)) for model in drawn)


def test_pfl_clients_that_trained_keep_their_own_head():
    for target in (PFLSampled, PFLEnsemble):
        model = target().export(target().release(SERVER, 1), HEADS[1], 1)["model"]
        assert torch.equal(model["2.weight"], HEADS[1]["2.weight"])


def test_pfl_ensemble_gives_a_new_client_the_mean_of_logits():
    """Heads (1, −1) and (−3, 1): the mean head is (−1, 0), which is the mean of the logits of both."""
    released = PFLEnsemble().release(SERVER, 7)
    assert PFLEnsemble().export(released, None, 7)["model"]["2.weight"].flatten().tolist() == [-1.0, 0.0]


def test_pfl_ensemble_adapter_averages_probabilities():
    """Image x = 1, body 1: p₀ = σ(2) by the first head and σ(−4) by the second; their mean decides for class 1.

    σ(2) + σ(−4) = 0.8808 + 0.0180 < 1, so class 1; the logits have the order and the ratio of the means.
    """
    knowledge = PFLEnsemble().export(PFLEnsemble().release(SERVER, 7), None, 7)
    net = toys.two_layers()
    net.load_state_dict(knowledge["model"])
    logits = Adapter(net, heads=knowledge["heads"])(torch.ones(1, 1, 1, 1))
    both = 1 / (1 + math.exp(-2)) + 1 / (1 + math.exp(4))
    assert logits.softmax(-1)[0].tolist() == pytest.approx([both / 2, 1 - both / 2])


def test_pfl_ensemble_adapter_of_a_client_that_trained_is_its_model():
    net = toys.two_layers()  # its head is the first of the heads
    heads = {"2.weight": torch.stack([head["2.weight"] for head in HEADS.values()])}
    x = torch.rand(5, 1, 1, 1)
    assert torch.equal(Adapter(net, heads=heads)(x), net(x))
