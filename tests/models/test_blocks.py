import pytest
from torch import nn

import toys
from acclimate.errors import UnsupportedModel
from acclimate.models.blocks import blocks
from acclimate.models.cct import CCT
from acclimate.models.resnet import resnet8
from acclimate.models.wide_resnet import WideResNet


def test_blocks_of_the_shallow_cnn_are_those_of_atp():
    assert {name: len(members) for name, members in blocks(toys.golden_build()).items()} == {
        "conv1": 3, "conv2": 3, "conv3": 3, "linear4": 4, "linear5": 2,
    }  # fmt: skip
    assert blocks(toys.golden_build())["linear4"] == ["linear4.weight", "linear4.bias", "bn4.weight", "bn4.bias"]


@pytest.mark.parametrize(
    ("net", "names"),
    [
        (resnet8(10, (3, 32, 32), nn.Identity()), ["conv1", "layer1", "layer2", "layer3", "fc"]),
        (WideResNet(10, (3, 32, 32), nn.Identity()), ["conv1", "layer1", "layer2", "layer3", "fc"]),
        (toys.normed(), ["1", "2"]),
        (toys.logistic(), ["1"]),
    ],
)
def test_blocks_are_stages_and_layers_in_order(net, names):
    assert list(blocks(net)) == names


def test_blocks_hold_every_parameter_once():
    for net in (CCT(10, (3, 32, 32), nn.Identity()), WideResNet(10, (3, 32, 32), nn.Identity()), toys.golden_build()):
        members = [name for block in blocks(net).values() for name in block]
        assert sorted(members) == sorted(name for name, _ in net.named_parameters())


def test_blocks_of_a_model_without_parameters():
    with pytest.raises(UnsupportedModel, match="Flatten has no parameters"):
        blocks(nn.Flatten())
