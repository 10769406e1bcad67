"""A federated head: what moves, what travels and what comes out."""

import torch

import toys
from acclimate.sgd import LocalSGD
from acclimate.training.fedper import FedPer
from acclimate.training.head import Head

ONE = toys.Fixed([1.0], [0])
MODEL = {"1.weight": torch.ones(1, 1), "2.weight": torch.tensor([[1.0], [-1.0]])}


def test_head_step_by_hand():
    """Body 1, head (1, −1), x = 1, y = 0: p₁ = 1/(1 + e²) = 0.119203, so at rate 1 the head is (1.1192, −1.1192)."""
    algorithm = Head(local=LocalSGD(lr=1.0))
    played = toys.play(algorithm, [toys.client(ONE, toys.two_layers, known={"model": MODEL})])
    moved = torch.tensor([[1.119203], [-1.119203]])
    torch.testing.assert_close(played.server.head["2.weight"], moved, rtol=0, atol=1e-5)
    assert played.server.body.keys() == {"1.weight"}
    model = algorithm.export(algorithm.release(played.server, 0), None, 0)["model"]
    assert torch.equal(model["1.weight"], MODEL["1.weight"])
    torch.testing.assert_close(model["2.weight"], moved, rtol=0, atol=1e-5)


def test_head_is_all_that_travels():
    algorithm = Head()
    client = toys.client(ONE, toys.two_layers, known={"model": MODEL})
    sent = algorithm.broadcast(algorithm.init(client.task), 0)
    assert sent.w.keys() == {"2.weight"}
    assert algorithm.client_update(sent, None, client)[0].update.keys() == {"2.weight"}


def test_head_leaves_batch_statistics_alone():
    known = {"model": {**{k: v + 0 for k, v in toys.normed().state_dict().items()}}}
    client = toys.client(toys.Fixed([1.0, 3.0], [0, 1]), toys.normed, known=known)
    played = toys.play(Head(), [client])
    assert played.server.body["1.num_batches_tracked"] == 0
    assert torch.equal(played.server.body["1.running_mean"], torch.zeros(1))


def test_head_starts_where_fedper_would_with_a_body_that_stays():
    """FedPer with a rate of nothing on the body is the same head; here the rates of both are too small to move it."""
    known = {"model": MODEL}
    head = toys.play(Head(local=LocalSGD(lr=1e-12)), [toys.client(ONE, toys.two_layers, known=known)])
    other = toys.play(FedPer(local=LocalSGD(lr=1e-12)), [toys.client(ONE, toys.two_layers, known=known)])
    torch.testing.assert_close(head.server.head["2.weight"], other.states[0]["2.weight"])
