import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import toys
from acclimate import params, trees
from acclimate.errors import UnsupportedModel
from acclimate.models import norms
from acclimate.models.build import Build
from acclimate.models.head import features, head_of, signature
from acclimate.models.mlp import MLP
from acclimate.models.normalise import Normalise
from acclimate.models.shallow_cnn import ShallowCNN
from acclimate.models.simple_cnn import SimpleCNN


def size(net: nn.Module) -> int:
    return sum(tensor.numel() for tensor in net.parameters())


def test_mlp_has_the_papers_parameters():
    """785 · 200 + 201 · 200 + 201 · 10 = 199,210."""
    assert size(MLP(10, (1, 28, 28), nn.Identity())) == 199_210


def test_mlp_takes_other_hidden_layers():
    """3 inputs, 4 hidden, 2 classes: 4 · 4 + 5 · 2 = 26 parameters; none hidden: 4 · 2 = 8."""
    assert size(MLP(2, (3, 1, 1), nn.Identity(), hidden=[4])) == 26
    assert size(MLP(2, (3, 1, 1), nn.Identity(), hidden=[])) == 8
    assert MLP(2, (3, 1, 1), nn.Identity(), hidden=[])(torch.zeros(5, 3, 1, 1)).shape == (5, 2)


def test_shallow_cnn_has_the_papers_parameters():
    """Convolutions 864 + 18,432 + 36,864, norms 2 · (32 + 3 · 64), linear 1,025 · 64 + 65 · 10: 122,858."""
    net = ShallowCNN(10, (3, 32, 32), nn.Identity())
    assert size(net) == 122_858
    assert net.linear4.in_features == 1024
    assert net(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize("shape", [(3, 18, 18), (1, 28, 28), (3, 18, 33)])
def test_shallow_cnn_fits_images_of_18_pixels_and_more(shape):
    assert ShallowCNN(4, shape, nn.Identity())(torch.zeros(2, *shape)).shape == (2, 4)


def test_shallow_cnn_refuses_small_images():
    with pytest.raises(UnsupportedModel, match=r"at least 18x18 pixels, found 17x32"):
        ShallowCNN(10, (3, 17, 32), nn.Identity())


def test_normalise_is_per_channel_and_no_parameter():
    """(1 − ½) / ¼ = 2 in the first channel, (1 − 0) / 2 = ½ in the second."""
    layer = Normalise((0.5, 0.0), (0.25, 2.0))
    assert layer(torch.ones(1, 2, 1, 1)).flatten().tolist() == [2.0, 0.5]
    assert params.of(layer) == {} and size(layer) == 0


def test_build_is_a_recipe_other_processes_can_follow():
    build = Build(MLP, 3, (1, 2, 2), (0.5,), (0.5,), {"hidden": [5]})
    torch.manual_seed(0)
    first = build(None)
    torch.manual_seed(0)
    again = pickle.loads(pickle.dumps(build))(7)
    assert trees.equal(params.of(first), params.of(again))
    assert first.head.weight.shape == (3, 5)


def test_build_stores_convolutions_channels_last():
    net = Build(toys.SmallNet, 3, (2, 8, 8), (0.5, 0.5), (0.5, 0.5))()
    assert net.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert not net.conv.weight.is_contiguous()


def test_head_of_is_the_last_linear_layer_or_the_one_named():
    net = ShallowCNN(10, (3, 18, 18), nn.Identity())
    assert head_of(net) == ("linear5", net.linear5)
    assert head_of(net, "linear4") == ("linear4", net.linear4)


def test_head_of_names_the_layers_there_are():
    net = ShallowCNN(10, (3, 18, 18), nn.Identity())
    with pytest.raises(UnsupportedModel, match="ShallowCNN has no linear layer 'fc'; it has: linear4, linear5"):
        head_of(net, "fc")
    with pytest.raises(UnsupportedModel, match=r"Flatten has no nn\.Linear layer, so it has no head"):
        head_of(nn.Flatten())


def test_features_are_what_enters_the_head():
    """Body b = 1, head (1, −1): the feature of x = 3 is 3, the logits ±3."""
    z, logits = features(toys.two_layers(), torch.full((1, 1, 1, 1), 3.0))
    assert z.tolist() == [[3.0]] and logits.tolist() == [[3.0, -3.0]]


def test_features_of_another_head_and_no_hook_left_behind():
    net = toys.two_layers()
    z, _ = features(net, torch.full((1, 1, 1, 1), 3.0), net[1])
    assert z.tolist() == [[3.0]]
    with pytest.raises(RuntimeError):
        features(net, torch.zeros(1, 2, 1, 1))
    assert not net[1]._forward_pre_hooks and not net[2]._forward_pre_hooks


def test_signature_is_the_mean_feature():
    assert signature(toys.two_layers(), torch.tensor([1.0, 4.0]).view(2, 1, 1, 1)).tolist() == [2.5]


def test_norm_layers_are_found_in_order_with_their_tensors():
    net = nn.Sequential(nn.BatchNorm2d(2), nn.GroupNorm(1, 2), nn.BatchNorm1d(3, track_running_stats=False))
    assert list(norms.norm_layers(net, "m")) == ["0", "1", "2"]
    assert list(norms.batch_norms(net, "m")) == ["0"]
    affine = norms.affine(norms.norm_layers(net, "m"))
    assert list(affine) == ["0.weight", "0.bias", "1.weight", "1.bias", "2.weight", "2.bias"]
    assert affine["1.bias"] is net[1].bias
    moments = norms.statistics(norms.batch_norms(net, "m"))
    assert list(moments) == ["0.running_mean", "0.running_var"]
    assert moments["0.running_var"] is net[0].running_var


def test_norms_of_a_model_without_any_are_unsupported():
    with pytest.raises(UnsupportedModel, match="'tent' adapts normalisation layers and Linear has none"):
        norms.norm_layers(nn.Linear(1, 1), "tent")
    with pytest.raises(UnsupportedModel, match="'bn-adapt' adapts batch-normalisation layers and GroupNorm"):
        norms.batch_norms(nn.GroupNorm(1, 2), "bn-adapt")


def test_batch_moments_are_per_channel_and_unbiased():
    """Channel 0 holds 1, 3, 5, 7: mean 4, variance (9 + 1 + 1 + 9) / 3; channel 1 is constant."""
    x = torch.tensor([[[[1.0, 3.0]], [[2.0, 2.0]]], [[[5.0, 7.0]], [[2.0, 2.0]]]])
    mean, variance = norms.batch_moments(x)
    assert mean.tolist() == [4.0, 2.0]
    torch.testing.assert_close(variance, torch.tensor([20 / 3, 0.0]))


def test_batch_moments_of_one_value_have_no_variance():
    mean, variance = norms.batch_moments(torch.tensor([[5.0]]))
    assert (mean.tolist(), variance.tolist()) == ([5.0], [0.0])


def test_batch_statistics_normalise_with_the_batch_and_leave_the_buffers():
    """(0, 2) has mean 1 and biased variance 1, so it becomes ∓1 / √(1 + 1e-5)."""
    net = toys.normed().eval()
    before, x = params.of(net), torch.tensor([0.0, 2.0]).view(2, 1, 1, 1)
    with norms.batch_statistics(net, 2), torch.no_grad():
        inside = net(x)[:, 0]
    torch.testing.assert_close(inside, torch.tensor([-1.0, 1.0]) / (1 + 1e-5) ** 0.5)
    assert trees.equal(params.of(net), before)
    assert not net[1].training and net[1].track_running_stats
    torch.testing.assert_close(net(x)[:, 0], torch.tensor([0.0, 2.0]) / (1 + 1e-5) ** 0.5)


def test_batch_statistics_are_put_back_after_an_error():
    net = toys.normed().train()
    with pytest.raises(KeyError), norms.batch_statistics(net, 2):
        raise KeyError
    assert net[1].running_mean.tolist() == [0.0] and net[1].training


def test_before_each_sees_the_input_of_every_layer():
    net, seen = toys.normed().eval(), {}
    with norms.before_each(norms.batch_norms(net, "m"), lambda name, layer, x: seen.update({name: x.tolist()})):
        net(torch.tensor([0.0, 2.0]).view(2, 1, 1, 1))
    net(torch.zeros(2, 1, 1, 1))
    assert seen == {"1": [[0.0], [2.0]]}


@pytest.mark.parametrize("options", [{}, {"bias": True, "batch_norm": True}])
def test_simple_cnn_pools_first_and_gives_the_same_bits(options):
    torch.manual_seed(0)
    net = SimpleCNN(10, (3, 32, 32), nn.Identity(), **options).to(memory_format=torch.channels_last)
    x, y = torch.randn(16, 3, 32, 32).contiguous(memory_format=torch.channels_last), torch.arange(16) % 10

    def as_written(x):
        x = F.max_pool2d(F.relu(net.bn1(net.conv1(x))), 2)
        x = F.max_pool2d(F.relu(net.bn2(net.conv2(x))), 2)
        return net.head(F.relu(net.hidden(x.flatten(1))))

    found = [torch.autograd.grad(F.cross_entropy(f(x), y), list(net.parameters())) for f in (net, as_written)]
    assert torch.equal(net(x), as_written(x))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
