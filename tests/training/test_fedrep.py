"""FedRep's two halves, by hand."""

import torch

import toys
from acclimate.sgd import LocalSGD
from acclimate.training.fedper import FedPer
from acclimate.training.fedrep import FedRep

ONE = toys.Fixed([1.0], [0])


def test_fedrep_trains_the_head_and_then_the_body():
    """Body b = 1, head (1, −1), x = 1, y = 0: p₁ = 1/(1 + e²) = 0.11920.

    Head: its gradient is (−p₁, p₁) b x, so with lr 1 it moves to (1.11920, −1.11920). Then the body, with that head:
    logits (±1.11920), p₁' = 1/(1 + e^2.23841) = 0.09635; ∂CE/∂b = p₁' · (h₁ − h₀) = 0.09635 · (−2.23841) = −0.21568, so
    b = 1.21568. FedPer moves both from where they were.
    """
    client = toys.client(ONE, toys.two_layers)
    played = toys.play(FedRep(local=LocalSGD(lr=1.0)), [client])
    torch.testing.assert_close(played.states[0]["2.weight"], torch.tensor([[1.119203], [-1.119203]]), rtol=0, atol=1e-5)
    torch.testing.assert_close(played.server.w["1.weight"], torch.tensor([[1.215680]]), rtol=0, atol=1e-5)
    other = toys.play(FedPer(local=LocalSGD(lr=1.0)), [client])
    torch.testing.assert_close(other.server.w["1.weight"], torch.tensor([[1.238406]]), rtol=0, atol=1e-5)


def test_fedrep_leaves_batch_statistics_alone_while_it_trains_the_head():
    """One epoch of one batch: a batch norm counts one batch, the body's, not two."""
    client = toys.client(toys.Fixed([1.0, 3.0], [0, 1]), toys.normed)
    played = toys.play(FedRep(local=LocalSGD(lr=0.1), head_epochs=3), [client])
    assert played.server.w["1.num_batches_tracked"] == 1


def test_fedrep_with_a_body_that_stays_is_training_the_head():
    frozen = toys.play(FedRep(local=LocalSGD(lr=1e-12)), [toys.client(ONE, toys.two_layers)])
    torch.testing.assert_close(frozen.server.w["1.weight"], torch.ones(1, 1))
