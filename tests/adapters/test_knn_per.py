import math

import torch
from torch import nn

from acclimate.adapters.knn_per import KNNPer
from acclimate.neighbours import by_neighbours
from acclimate.params import load

MEMORY = {
    "features": torch.tensor([[0.0, 0.0], [0.0, 2.0], [9.0, 9.0]]),
    "labels": torch.tensor([0, 1, 1]),
    "k": 2,
    "scale": 1.0,
    "share": 0.5,
}


def net():
    """Features are the images; both classes are as likely."""
    return load(nn.Sequential(nn.Flatten(), nn.Linear(2, 2, bias=False)), {"1.weight": torch.zeros(2, 2)})


def test_knn_per_by_hand():
    """At (0, 0): the two nearest are at distances 0 and 2, of two dimensions: weights 1 and e⁻¹, of classes 0 and 1."""
    near = 1 / (1 + math.exp(-1))
    logits = KNNPer(net(), memory=MEMORY)(torch.zeros(1, 2, 1, 1))
    torch.testing.assert_close(logits.exp(), torch.tensor([[0.25 + 0.5 * near, 0.75 - 0.5 * near]]))


def test_knn_per_without_neighbours_is_the_model():
    x = torch.rand(4, 2, 1, 1)
    torch.testing.assert_close(KNNPer(net(), memory=MEMORY, share=0.0)(x), net()(x).log_softmax(1))


def test_knn_per_of_a_small_memory_asks_all_of_it():
    shares = by_neighbours(torch.zeros(1, 2), MEMORY["features"], MEMORY["labels"], 3, 10, 1e9)
    torch.testing.assert_close(shares, torch.tensor([[1 / 3, 2 / 3, 0.0]]))
