import torch

import toys
from acclimate import trees
from acclimate.sgd import LocalSGD
from acclimate.training.btfl import BTFL
from acclimate.training.fedthe import FedTHE


def test_fedthe_balances_the_shared_model_and_not_the_personal_head():
    """x = 1, labels 0, 0, 1, head 0: with log (3, 2) the shared model says (3/5, 2/5) and the shares are (2/3, 1/3), so
    its gradient is (−1/15, 1/15) and with lr 1 it is (1/15, −1/15). The personal head, at zero, goes by (1/6, −1/6).
    """
    one = toys.client(toys.Fixed([1.0, 1.0, 1.0], [0, 0, 1]))
    played = toys.play(FedTHE(LocalSGD(lr=1.0)), [one], states={0: torch.zeros(2, 1)})
    torch.testing.assert_close(played.server.w["1.weight"], torch.tensor([[1 / 15], [-1 / 15]]))
    torch.testing.assert_close(played.states[0], torch.tensor([[1 / 6], [-1 / 6]]))


def test_fedthe_of_equal_classes_is_btfl():
    one = toys.client(toys.Fixed([0.3, -1.2, 2.0, 0.7], [0, 1, 0, 1]), toys.two_layers)
    ours, theirs = (toys.play(a(LocalSGD(lr=1.0)), [one], states={0: torch.zeros(2, 1)}) for a in (FedTHE, BTFL))
    for a, b in zip(trees.leaves(ours.server.w), trees.leaves(theirs.server.w), strict=True):
        torch.testing.assert_close(a, b)
    assert torch.equal(ours.states[0], theirs.states[0])
