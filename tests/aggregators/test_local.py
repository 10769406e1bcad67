import torch

import toys
from acclimate import trees
from acclimate.aggregators.local import Local


def test_local_is_the_identity():
    """W = I for K = 3, whatever the weights: everybody gets its own upload back, to the bit."""
    uploads = [toys.upload(torch.tensor([0.1 * k, -k]), weight=k + 1) for k in range(3)]
    mix = Local().mix(None, uploads, slot=0)
    assert mix.figures["weights"].tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    assert trees.equal(mix.downloads, [upload.params for upload in uploads])


def test_local_of_nobody_is_nothing():
    mix = Local().mix(Local().init([]), [], slot=3)
    assert mix.downloads == [] and mix.state is None
