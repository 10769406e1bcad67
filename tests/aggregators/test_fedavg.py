import torch

import toys
from acclimate import trees
from acclimate.aggregators.fedavg import FedAvg


def test_fedavg_weighs_by_number_of_images():
    """n = (10, 30): W_ij = (¼, ¾) in both rows, and both get ¼ · 4 + ¾ · 8 = 7."""
    mix = FedAvg().mix(None, [toys.upload(4.0, weight=10), toys.upload(8.0, weight=30)], slot=0)
    assert mix.figures["weights"].tolist() == [[0.25, 0.75], [0.25, 0.75]]
    assert [download["w"].item() for download in mix.downloads] == [7.0, 7.0]


def test_fedavg_mixes_every_tensor_in_its_own_type():
    """Equal weights: counters 2 and 5 make 3.5, which is rounded to the even 4."""
    uploads = [
        toys.upload({"v": torch.tensor([1.0, 3.0]), "n": torch.tensor(2)}),
        toys.upload({"v": torch.tensor([3.0, 9.0]), "n": torch.tensor(5)}),
    ]
    first = FedAvg().mix(None, uploads, slot=0).downloads[0]
    assert trees.equal(first, {"v": torch.tensor([2.0, 6.0]), "n": torch.tensor(4)})


def test_fedavg_of_one_client_is_the_identity():
    mix = FedAvg().mix(None, [toys.upload(0.1, weight=7)], slot=0)
    assert trees.equal(mix.downloads, [{"w": torch.tensor(0.1)}])


def test_fedavg_of_nobody_is_nothing():
    assert FedAvg().mix(None, [], slot=0).downloads == []
