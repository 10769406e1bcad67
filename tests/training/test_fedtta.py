import math

import pytest
import torch
from torch import nn

import fedtta_golden
import toys
from acclimate import params, trees
from acclimate.engine.live import Extending
from acclimate.models.build import Build
from acclimate.models.extended import is_extra, plain
from acclimate.models.loss_net import InnerStep
from acclimate.sgd import LocalSGD, trainable
from acclimate.training import fedtta
from acclimate.training.fedavg import FedAvg, Global
from acclimate.training.fedtta import FedTTA
from acclimate.training.fedtta_prox import FedTTAProx

SMALL = Build(toys.SmallNet, 3, (1, 8, 8), (0.5,), (0.25,))
LOOP = {"lr": 0.1, "batch_size": 32, "weight_decay": 1e-4, "clip": 10.0, "decay": 0.99, "decay_every": 10}


def golden_round(algorithm, start=None):
    """ψ and φ after a client's work in the first round."""
    inputs = toys.golden("fedtta/inputs.npz")
    w = {**fedtta_golden.whole(inputs), **(start or {})}
    x, y = torch.from_numpy(inputs["X_train"]).double(), torch.from_numpy(inputs["Y_train"])
    build = Extending(fedtta_golden.build, (algorithm,))
    reply, _ = algorithm.client_update(Global(w, 0), None, toys.client(toys.Fixed(x, y), build, classes=10))
    return reply


def golden_algorithm(kind, iterations, **more):
    local = LocalSGD(**LOOP, steps=iterations)
    target = FedTTAProx if kind == "prox" else FedTTA
    return target(local, inner_lr=0.3, adapt_lr=0.01, **({"mu": 0.1} if kind == "prox" else {}), **more)


GOLDEN = {
    "code/fedtta/round0/iters1": ("fedtta", 1, {}),
    "code/fedtta/round0/iters3": ("fedtta", 3, {}),
    "code/fedtta_prox/round0/iters3": ("prox", 3, {}),
    "plain/fedtta/iters1": ("fedtta", 1, {"preset": "plain"}),
    "plain/fedtta/iters3": ("fedtta", 3, {"preset": "plain"}),
    "plain/prox_kl_local_server/iters1": ("prox", 1, {"preset": "plain", "direction": "paper"}),
    "plain/prox_kl_server_local/iters3": ("prox", 3, {"preset": "plain"}),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_fedtta_agrees_with_golden_vectors(name):
    kind, iterations, more = GOLDEN[name]
    arrays = toys.golden("fedtta/train.npz")
    reply = golden_round(golden_algorithm(kind, iterations, **more))
    expected = fedtta_golden.whole(arrays, f"{name}/")
    assert expected
    for key, tensor in expected.items():
        torch.testing.assert_close(reply.update[key], tensor, **toys.TIGHT)
    if kind == "fedtta":  # the reference reports the cross-entropy alone
        assert reply.metrics["loss"] == pytest.approx(float(arrays[f"{name}/mean_loss"]), abs=1e-9)


def test_fedtta_agrees_with_golden_vectors_where_gradients_are_clipped():
    arrays = toys.golden("fedtta/train.npz")
    start = toys.golden_params(arrays, "code_clip_active/init_psi/")
    reply = golden_round(golden_algorithm("fedtta", 1), start)
    for key, tensor in fedtta_golden.whole(arrays, "code_clip_active/fedtta/round0/iters1/").items():
        torch.testing.assert_close(reply.update[key], tensor, rtol=1e-6, atol=1e-9)


def clients(algorithm=None, sizes=(23, 31), build=SMALL):
    extended = build if algorithm is None else Extending(build, (algorithm,))
    return [toys.client(toys.examples(size, seed=k), extended, id=k, classes=3) for k, size in enumerate(sizes)]


def first_order(loss, tensors, step):
    """A step whose gradient is a constant."""
    found = torch.autograd.grad(loss, list(tensors.values()))
    return {n: t - step.lr * g for (n, t), g in zip(tensors.items(), found, strict=True)}


def gradient_of_phi():
    """∇_φ of the meta loss of a small model."""
    algorithm = FedTTA()
    torch.manual_seed(0)
    (one,) = clients(algorithm, (8,))
    net = one.net(one.start())
    loss = algorithm.meta_loss(net, one.start(), algorithm.inner(0))
    return params.gradients(loss(one.train.x, one.train.y), params.select(trainable(net), is_extra))


def test_fedtta_teaches_the_loss_through_the_inner_step_only(monkeypatch):
    assert all(tensor.any() for name, tensor in gradient_of_phi().items() if "weight" in name)
    monkeypatch.setattr(fedtta, "stepped", first_order)
    assert not any(tensor.any() for tensor in gradient_of_phi().values())


class OneWeight(nn.Module):
    """Image x = 1: logits (w, 0)."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(1, 2, bias=False)

    def forward(self, x):
        return self.head(x.flatten(1))


def test_fedtta_gradient_by_hand():
    """One image x = 1 of class 0, logits (w₀, w₁) = (0, 0), all of g's weights 1 and width 1, biases 0.

    With h = w₀ + w₁ + c (c = 1, the first bias) positive, g = h and ℓ = |g| = w₀ + w₁ + 1, so ∇ℓ = (1, 1), whatever w:
    no second derivative. ψ̃ = w − η (1, 1) · (product of g's later weights, 1): both logits fall alike, and the
    cross-entropy is ln 2 as before. Its gradient is (−½, ½), so w = (½, −½) after a step of rate 1.
    """
    algorithm = FedTTA(LocalSGD(lr=1.0, steps=1), inner_lr=0.25, adapt_lr=1.0, preset="plain")
    build = Extending(lambda id: OneWeight(), (algorithm,))
    one = toys.client(toys.Fixed([1.0], [0]), build)
    start = {name: torch.zeros_like(tensor) for name, tensor in one.start().items()}
    for layer, (rows, columns) in {0: (1, 2), 2: (1, 1), 4: (1, 1), 6: (1, 1)}.items():
        start[f"extra.loss_net.{layer}.weight"][:rows, :columns] = 1.0
    start["extra.loss_net.0.bias"][0] = 1.0
    reply, _ = algorithm.client_update(Global(start, 0), None, one)
    assert reply.update["head.weight"].flatten().tolist() == pytest.approx([0.5, -0.5])
    assert reply.metrics["loss"] == pytest.approx(math.log(2))


def test_fedtta_without_an_inner_step_equals_fedavg():
    local = LocalSGD(lr=0.1, batch_size=8, epochs=2)
    algorithm = FedTTA(local, inner_lr=0.0, preset="plain")
    torch.manual_seed(0)
    w = algorithm.init(clients(algorithm)[0].task)
    meta = toys.play(algorithm, clients(algorithm), w).server
    bare = toys.play(FedAvg(local), clients(), w._replace(w=plain(w.w))).server
    for name, tensor in bare.w.items():
        if "running" not in name and "num_batches" not in name:  # two passes move batch statistics twice
            torch.testing.assert_close(meta.w[name], tensor)
    assert all(torch.equal(meta.w[name], w.w[name]) for name in w.w if name.startswith("extra."))


def test_fedtta_prox_without_mu_equals_fedtta():
    local = LocalSGD(lr=0.1, batch_size=8, steps=4)
    torch.manual_seed(0)
    w = FedTTA().init(clients(FedTTA())[0].task)
    same, free, held = (
        toys.play(algorithm, clients(algorithm), w).server
        for algorithm in (
            FedTTA(local, adapt_lr=0.001), FedTTAProx(local, mu=0.0), FedTTAProx(local, mu=1.0)
        )
    )  # fmt: skip
    assert trees.equal(same, free)
    assert not trees.equal(same, held)


def test_fedtta_prox_pulls_by_kl_by_hand():
    """p = (¾, ¼) sent and (½, ½) own: KL(sent ‖ own) = ¾ ln 1.5 − ¼ ln 2; the paper's direction ½ ln ⅔ + ½ ln 2."""
    net = OneWeight()
    x, z = torch.ones(1, 1, 1, 1), torch.zeros(1, 2)
    sent = {"head.weight": torch.tensor([[math.log(3.0)], [0.0]])}
    code = FedTTAProx(mu=2.0).beside(net, sent, x, z)
    paper = FedTTAProx(mu=2.0, direction="paper").beside(net, sent, x, z)
    assert float(code) == pytest.approx(2 * (0.75 * math.log(1.5) - 0.25 * math.log(2)), abs=1e-6)
    assert float(paper) == pytest.approx(2 * (0.5 * math.log(2 / 3) + 0.5 * math.log(2)), abs=1e-6)


def test_fedtta_weighs_clients_by_examples_or_alike():
    for weighting, weights in (("examples", [23, 31]), ("uniform", [1, 1])):
        algorithm = FedTTA(LocalSGD(batch_size=8, steps=1), weighting=weighting)
        replies = toys.play(algorithm, clients(algorithm)).replies
        assert [reply.weight for reply in replies.values()] == weights


def test_fedtta_exports_the_rate_of_the_round_it_ended_in():
    algorithm = FedTTA()
    (one,) = clients(algorithm, (8,))
    exported = algorithm.export(algorithm.init(one.task)._replace(round=20), None, 0)
    assert exported["inner_step"] == InnerStep(0.5 * 0.99**2, 1e-4, 10.0)
    assert exported["model"].keys() == params.of(SMALL(None)).keys()
    assert len(exported["loss_net"]) == 8
    bare = FedTTA(preset="plain")
    assert bare.inner(20) == InnerStep(0.5, 0.0, None)
