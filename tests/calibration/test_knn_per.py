import pytest
import torch

import toys
from acclimate import params
from acclimate.calibration.knn_per import KNNPer


def client(model, validation):
    """Training images 1 and −1 of classes 0 and 1; features are images times the body, 1."""
    known = {"model": {**params.of(toys.two_layers()), "2.weight": torch.tensor(model).view(2, 1)}}
    data = toys.Fixed([1.0, -1.0], [0, 1])
    return toys.client(data, toys.two_layers, validation=validation, known=known)


def test_knn_per_stores_training_features_with_their_labels():
    own = toys.play(KNNPer(k=1, share=0.3), [client([1.0, -1.0], None)]).states[0]
    assert (own["features"].tolist(), own["labels"].tolist()) == ([[1.0], [-1.0]], [0, 1])
    assert (own["k"], own["share"]) == (1, 0.3)


@pytest.mark.parametrize(("head", "expected"), [([2.0, -2.0], 0.0), ([-1.0, 1.0], 0.5)])
def test_knn_per_trusts_its_memory_where_the_model_is_wrong(head, expected):
    """The first head is right whatever λ, so λ is 0. The second gives the wrong class σ(2 · 0.8) = 0.83 and
    σ(2 · 0.9) = 0.86; the neighbour, λ, outweighs (1 − λ) (2 · 0.86 − 1) from λ = 0.42 on: 0.5.
    """
    validation = toys.Fixed([0.8, -0.9], [0, 1])
    own = toys.play(KNNPer(k=1), [client(head, validation)]).states[0]
    assert own["share"] == expected


def test_knn_per_gives_nothing_to_others():
    algorithm = KNNPer()
    played = toys.play(algorithm, [client([1.0, -1.0], None)])
    assert algorithm.export(played.server, None, 3) == {}
    assert played.replies[0].update == 1  # nothing of the memory left the client
