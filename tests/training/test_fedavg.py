import math

import torch
from torch import nn

import battery
import toys
from acclimate import params, trees
from acclimate.contracts import Replies
from acclimate.engine.known import Known
from acclimate.models.build import Build
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import FedAvg, Global

ONE_STEP = LocalSGD(lr=1.0, batch_size=8)


def test_fedavg_averages_by_number_of_examples():
    """One step from w = 0 with lr 1, so p = (½, ½) and w_k = mean of (y_c − ½) x.

    Client 0: one example x = 1, y = 0, w = (½, −½). Client 1: three examples x = 2, y = 1, w = (−1, 1).
    Σ (n_k / n) w_k = ¼ (½, −½) + ¾ (−1, 1) = (−0.625, 0.625).
    """
    first = toys.client(toys.Fixed([1.0], [0]), id=0)
    second = toys.client(toys.Fixed([2.0, 2.0, 2.0], [1, 1, 1]), id=1)
    server, _, replies = toys.play(FedAvg(ONE_STEP), [first, second])
    assert server.round == 1
    assert server.w["1.weight"].flatten().tolist() == [-0.625, 0.625]
    assert [reply.weight for reply in replies.values()] == [1, 3]
    assert replies[0].metrics["loss"] == torch.tensor(2.0).log().item()  # ln 2 at w = 0


def test_fedavg_averages_batch_statistics_and_rounds_counters():
    """x = (0, 2): mean 1, unbiased variance 2, so running mean 0.1 · 1 and variance 0.9 + 0.1 · 2 = 1.1.

    x = (4, 4) twice: after two batches the mean is 0.4 + 0.9 · 0.4 = 0.76 and the variance 0.9² = 0.81.
    Weights 2 : 4 give means (0.1 + 2 · 0.76) / 3 = 0.54, variances (1.1 + 2 · 0.81) / 3 = 0.90667, and the
    counter (1 + 2 · 2) / 3 is rounded to 2.
    """
    first = toys.client(toys.Fixed([0.0, 2.0], [0, 1]), toys.normed)
    second = toys.client(toys.Fixed([4.0] * 4, [0, 1, 0, 1]), toys.normed, id=1)
    w = toys.play(FedAvg(LocalSGD(lr=1.0, batch_size=2)), [first, second]).server.w
    assert math.isclose(w["1.running_mean"].item(), 0.54, rel_tol=1e-6)
    assert math.isclose(w["1.running_var"].item(), 2.72 / 3, rel_tol=1e-6)
    assert w["1.num_batches_tracked"].item() == 2


def test_fedavg_of_equal_clients_is_that_client_to_the_bit():
    build = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))
    alike = [toys.client(toys.examples(7), build, id=k) for k in range(3)]
    (w, _), _, replies = toys.play(FedAvg(), alike)
    assert trees.equal(w, replies[0].update)
    assert not torch.equal(w["head.weight"], alike[0].task.build(None).get_parameter("head.weight"))


def test_fedavg_exports_the_server_model_to_everybody():
    server = FedAvg().init(toys.client(toys.Fixed([1.0], [0])).task)
    assert FedAvg().export(FedAvg().release(server, 3), None, 3) == {"model": server.w}


def test_fedavg_agrees_with_golden_vectors():
    inputs, expected = toys.golden("atp/inputs.npz"), toys.golden("atp/fedavg.npz")
    w = toys.golden_params(inputs, "w/")
    algorithm, replies = FedAvg(LocalSGD(lr=0.1, batch_size=20)), Replies()
    for k, count in ((0, 60), (1, 30)):
        data = toys.Fixed(torch.from_numpy(inputs[f"X{k}"][:count]).double(), inputs[f"Y{k}"][:count])
        one = toys.client(data, toys.golden_build, id=k)
        reply, state = algorithm.client_update(algorithm.broadcast(Global(w, 0), k), None, one)
        assert state is None
        loss, _, n = expected[f"fedavg_client{k}_loss_acc_n"].tolist()
        assert reply.weight == n
        assert math.isclose(reply.metrics["loss"], loss, abs_tol=1e-9)
        for name, tensor in toys.golden_params(expected, f"fedavg_client{k}/").items():
            torch.testing.assert_close(reply.update[name], tensor, **toys.TIGHT)
        replies.add(k, reply)
    after, agreed = algorithm.server_update(Global(w, 0), replies).w, toys.golden_params(expected, "fedavg_agg/")
    assert after.keys() == agreed.keys()
    for name, tensor in agreed.items():
        if name.endswith("num_batches_tracked"):  # 48 and (60 · 3 + 30 · 2) / 90 more; the reference cuts to 50
            assert after[name].item() == 51
            continue
        torch.testing.assert_close(after[name], tensor, **toys.TIGHT, msg=lambda m, name=name: f"{name}: {m}")


def test_fedavg_starts_from_the_model_the_task_builds():
    net = nn.Linear(2, 2)
    task = toys.client(toys.Fixed([1.0], [0]), lambda id: net).task
    w = FedAvg().init(task).w
    assert trees.equal(w, params.of(net))
    assert w["weight"].data_ptr() != net.weight.data_ptr()


def test_fedavg_of_two_and_three_rounds_starts_the_second_phase_from_the_first():
    people = toys.population()
    build = toys.build_for(people)
    first = battery.run_algorithm(FedAvg(), people=people, make=build, rounds=2)
    more = {"position": 1, "known": Known([first]), "keep_every": 3}
    second = battery.run_algorithm(FedAvg(), people=people, make=build, rounds=3, **more)
    w = Known([first]).of(None)["model"]
    assert trees.equal(trees.load(second.checkpoint.server(0)).w, w)
    assert not trees.equal(Known([first, second]).of(None)["model"], w)
