import pytest
import torch

import toys
from acclimate.contracts import Replies, Reply
from acclimate.models.build import Build
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import FedAvg, Global
from acclimate.training.fedavgm import FedAvgM, State


def steps(algorithm: FedAvgM, means: list[float]) -> list[tuple[float, float]]:
    server, path = State(Global({"w": torch.tensor(0.0)}, 0), {"w": torch.tensor(0.0)}), []
    for mean in means:
        replies = Replies()
        replies.add(0, Reply({"w": torch.tensor(mean)}))
        server = algorithm.server_update(server, replies)
        path.append((server.sent.w["w"].item(), server.v["w"].item()))
    return path


@pytest.mark.parametrize(("lr", "expected"), [(1.0, [(2.0, -2.0), (4.0, -2.0)]), (0.5, [(1.0, -2.0), (2.5, -3.0)])])
def test_fedavgm_steps_along_the_velocity(lr, expected):
    """β = ½, w = v = 0, clients' means 2 then 3.

    lr 1: Δ = 0 − 2, v = −2, w = 2; Δ = 2 − 3, v = ½ · (−2) − 1 = −2, w = 2 + 2 = 4.
    lr ½: w = 0 + ½ · 2 = 1; Δ = 1 − 3, v = −1 − 2 = −3, w = 1 + 1.5 = 2.5.
    """
    assert steps(FedAvgM(beta=0.5, lr=lr), [2.0, 3.0]) == expected


def test_fedavgm_without_momentum_equals_fedavg():
    build = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))
    local = LocalSGD(lr=0.5)
    clients = [[toys.client(toys.examples(20 + k, seed=k), build, id=k) for k in range(2)] for _ in range(3)]
    start = FedAvg().init(clients[0][0].task)
    still = State(start, {name: torch.zeros_like(t) for name, t in build(None).named_parameters()})
    plain = toys.play(FedAvg(local), clients[0], start).server.w
    server = toys.play(FedAvgM(local, beta=0.0, lr=1.0), clients[1], still).server.sent
    for name, tensor in plain.items():  # w − (w − mean) is the mean up to rounding
        torch.testing.assert_close(server.w[name], tensor, rtol=0, atol=1e-6)
    half = toys.play(FedAvgM(local, beta=0.0, lr=0.5), clients[2], still).server.sent
    assert not torch.allclose(half.w["head.weight"], plain["head.weight"], rtol=0, atol=1e-6)


def test_fedavgm_averages_statistics_and_keeps_no_velocity_of_them():
    one = toys.client(toys.Fixed([0.0, 2.0], [0, 1]), toys.normed)
    start = FedAvgM().init(one.task)
    assert set(start.v) == {"1.weight", "1.bias", "2.weight"}
    assert not any(tensor.any() for tensor in start.v.values())
    server, _, replies = toys.play(FedAvgM(lr=0.25), [one], start)
    for name in ("1.running_mean", "1.running_var", "1.num_batches_tracked"):
        assert torch.equal(server.sent.w[name], replies[0].update[name])
    assert server.sent.w.keys() == start.sent.w.keys()


def test_fedavgm_sends_and_exports_the_model_only():
    server = FedAvgM().init(toys.client(toys.Fixed([1.0], [0])).task)
    assert FedAvgM().broadcast(server, 3) is server.sent
    assert FedAvgM().export(FedAvgM().release(server, 3), None, 3) == {"model": server.sent.w}
