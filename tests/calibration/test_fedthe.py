import torch

import toys
from acclimate import params
from acclimate.calibration.fedthe import FedTHE


def client(x, id):
    """A client whose features are twice its images."""
    model = {**params.of(toys.two_layers()), "1.weight": torch.full((1, 1), 2.0)}
    return toys.client(toys.Fixed(x, [0] * len(x)), toys.two_layers, id=id, known={"model": model})


def test_fedthe_means_by_hand():
    """Images (1, 3) and (5): mean features 4 and 10, whose plain mean is 7, however many images each has."""
    algorithm, clients = FedTHE(), [client([1.0, 3.0], 0), client([5.0], 1)]
    played = toys.play(algorithm, clients)
    again = toys.play(algorithm, clients, played.server, played.states)  # asked twice, counted once
    for result in (played, again):
        given = algorithm.export(result.server, result.states[0], 0)["means"]
        assert (given["local"].tolist(), given["global"].tolist()) == ([4.0], [7.0])
    assert algorithm.export(played.server, None, 7) == {}
