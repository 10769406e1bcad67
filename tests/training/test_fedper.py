import math

import pytest
import torch

import toys
from acclimate import trees
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import Global
from acclimate.training.fedper import FedPer

BODY, HEAD = "1.weight", "2.weight"


def test_fedper_trains_both_parts_and_sends_the_body():
    """Logits (b x h₀, b x h₁) with b = 1, h = (1, −1), x = 1, y = 0, lr 1; p = σ(2).

    ∂/∂b = (p − 1) h₀ + (1 − p) h₁ = −2 (1 − p), so b = 1 + 2 (1 − p); h₀ = 1 + (1 − p), h₁ = −h₀.
    """
    rest = 1 - 1 / (1 + math.exp(-2))
    one = toys.client(toys.Fixed([1.0], [0]), toys.two_layers)
    (server, _), states, replies = toys.play(FedPer(LocalSGD(lr=1.0)), [one])
    assert server[BODY].item() == pytest.approx(1 + 2 * rest, abs=1e-6)
    assert states[0][HEAD].flatten().tolist() == pytest.approx([1 + rest, -1 - rest], abs=1e-6)
    assert set(replies[0].update) == set(server) == {BODY}
    assert set(states[0]) == {HEAD}


def test_fedper_clients_share_the_body_and_differ_in_the_head():
    clients = [toys.client(toys.Fixed([1.0], [k]), toys.two_layers, id=k) for k in range(2)]
    algorithm = FedPer(LocalSGD(lr=1.0))
    server, states, replies = toys.play(algorithm, clients)
    body = server.w
    mean = (replies[0].update[BODY] + replies[1].update[BODY]) / 2
    torch.testing.assert_close(body[BODY], mean)
    assert not torch.equal(states[0][HEAD], states[1][HEAD])
    for k in range(2):
        model = algorithm.export(server, states[k], k)["model"]
        assert trees.equal(model, {BODY: body[BODY], HEAD: states[k][HEAD]})


def test_fedper_goes_on_with_the_head_a_client_kept():
    one = toys.client(toys.Fixed([1.0], [0]), toys.two_layers)
    algorithm = FedPer(LocalSGD(lr=1e-6))
    kept = {HEAD: torch.tensor([[7.0], [-7.0]])}
    after = toys.play(algorithm, [one], Global({BODY: torch.ones(1, 1)}, 0), {0: kept}).states[0]
    torch.testing.assert_close(after[HEAD], kept[HEAD], rtol=0, atol=1e-4)


def test_fedper_exports_no_model_to_a_client_without_a_head():
    server = FedPer().init(toys.client(toys.Fixed([1.0], [0]), toys.two_layers).task)
    assert FedPer().export(server, None, 0) == {}
