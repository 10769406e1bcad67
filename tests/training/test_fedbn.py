import math

import pytest
import torch

import toys
from acclimate.errors import UnsupportedModel
from acclimate.models.shallow_cnn import ShallowCNN
from acclimate.sgd import LocalSGD
from acclimate.training.fedbn import FedBN

KEPT = {"1.weight", "1.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked"}


def test_fedbn_keeps_statistics_on_the_client_and_sends_the_head():
    """x = (0, 2), y = (0, 1): mean 1, biased variance 1, unbiased 2, z = ∓s with s = 1 / √(1 + 1e-5).

    Kept: running mean 0.1 · 1, running variance 0.9 · 1 + 0.1 · 2. Head (1, −1), so p₀ = σ(2 z) and its
    gradient is mean((p₀ − y₀) z) = (σ(−2s) − 1)(−s) / 2 + σ(2s) s / 2 = s σ(2s); lr 1 gives 1 − s σ(2s).
    """
    one = toys.client(toys.Fixed([0.0, 2.0], [0, 1]), toys.normed)
    _, states, replies = toys.play(FedBN(LocalSGD(lr=1.0)), [one])
    assert states[0]["1.running_mean"].item() == pytest.approx(0.1, abs=1e-6)
    assert states[0]["1.running_var"].item() == pytest.approx(1.1, abs=1e-6)
    s = 1 / math.sqrt(1 + 1e-5)
    weight = 1 - s / (1 + math.exp(-2 * s))
    assert replies[0].update["2.weight"].flatten().tolist() == pytest.approx([weight, -weight], abs=1e-6)


def test_fedbn_never_sends_batch_norms_in_either_direction():
    clients = [toys.client(toys.Fixed([0.0, 2.0 + k], [0, 1]), toys.normed, id=k) for k in range(2)]
    algorithm = FedBN()
    start = algorithm.init(clients[0].task)
    server, states, replies = toys.play(algorithm, clients, start)
    sent = [algorithm.broadcast(start, 0).w, algorithm.broadcast(server, 1).w, *(r.update for r in replies.values())]
    assert [set(message) for message in sent] == [{"2.weight"}] * 4
    assert all(set(state) == KEPT for state in states.values())
    assert not torch.equal(states[0]["1.running_mean"], states[1]["1.running_mean"])


def test_fedbn_exports_a_whole_model_to_those_who_took_part_only():
    algorithm = FedBN()
    server, states, _ = toys.play(algorithm, [toys.client(toys.Fixed([0.0, 2.0], [0, 1]), toys.normed)])
    assert set(algorithm.export(server, states[0], 0)["model"]) == {"2.weight", *KEPT}
    assert algorithm.export(server, None, 0) == {}


def test_fedbn_keeps_every_norm_of_the_shallow_cnn():
    names = FedBN().stays(ShallowCNN(10, (3, 18, 18), torch.nn.Identity()))
    assert {name.split(".")[0] for name in names} == {"bn1", "bn2", "bn3", "bn4"}
    assert len(names) == 20


def test_fedbn_without_norm_layers_names_itself():
    with pytest.raises(UnsupportedModel, match="'fedbn' adapts normalisation layers and Sequential has none"):
        FedBN().init(toys.client(toys.Fixed([1.0], [0])).task)
