"""All models of the catalog: their sizes, their heads, and what the engine asks of each."""

import copy
from functools import cache

import pytest
import torch
from torch import nn

from acclimate import params, trees
from acclimate.errors import UnsupportedModel
from acclimate.experiment.catalog import MODELS
from acclimate.experiment.schema import check
from acclimate.models import norms
from acclimate.models.build import Build
from acclimate.models.cct import CCT, Encoder
from acclimate.models.fedtta_cnn import FedTTACNN
from acclimate.models.head import features, head_of
from acclimate.models.resnet import BasicBlock, Bottleneck, resnet8, resnet18, resnet20_gn, resnet50
from acclimate.models.resnext import resnext29
from acclimate.models.simple_cnn import SimpleCNN
from acclimate.models.wide_resnet import WideBlock, WideResNet

CIFAR = (3, 32, 32)
SHAPES = {"mlp": (1, 28, 28), "resnet18": (3, 64, 64), "resnet50": (3, 64, 64)}  # CIFAR's where not said
HEADS = {  # its name and the number of features
    "mlp": ("head", 200),
    "shallow-cnn": ("linear5", 64),
    "fedtta-cnn": ("head", 512),
    "simple-cnn": ("head", 64),
    "resnet8": ("fc", 256),
    "resnet18": ("fc", 512),
    "resnet50": ("fc", 2048),
    "resnet20-gn": ("fc", 64),
    "resnext29": ("fc", 1024),
    "wide-resnet": ("fc", 128),
    "cct": ("head", 128),
}


def size(make, classes, shape, **options):
    """The number of parameters, without making them."""
    with torch.device("meta"):
        net = make(classes, shape, nn.Identity(), **options)
    return sum(tensor.numel() for tensor in net.parameters())


def recipe(name):
    shape = SHAPES.get(name, CIFAR)
    return Build(MODELS[name].load(), 10, shape, (0.5,) * shape[0], (0.25,) * shape[0])


@cache
def made(name):
    """A model of the catalog with random statistics in its batch norms, in eval mode; no test changes it."""
    torch.manual_seed(0)
    net = recipe(name)()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.running_mean, std=0.1)
            nn.init.uniform_(module.running_var, 0.5, 2)
    return net.eval()


def images(name, count=2):
    return torch.rand(count, *SHAPES.get(name, CIFAR), generator=torch.Generator().manual_seed(1))


def affine_of(net):
    """The scales and shifts of a model."""
    return list(norms.affine(norms.norm_layers(net, "tent")).values())


# What the engine and the methods ask of every model


@pytest.mark.parametrize("name", MODELS)
def test_model_answers_logits_and_learns_from_them(name):
    torch.manual_seed(0)
    net = recipe(name)().train()
    logits = net(images(name, 4))
    assert logits.shape == (4, 10)
    nn.functional.cross_entropy(logits, torch.tensor([0, 3, 5, 9])).backward()
    for key, tensor in net.named_parameters():
        assert tensor.grad is not None and tensor.grad.isfinite().all(), key


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_model_normalises_first_and_without_parameters(name):
    net, x = made(name), images(name)
    given = net.normalise
    assert next(net.children()) is given and params.of(given) == {} and not list(given.parameters())
    logits = net(x)
    net.normalise = nn.Identity()
    try:
        torch.testing.assert_close(net((x - 0.5) / 0.25), logits)
    finally:
        net.normalise = given


def test_resnet8_may_meet_images_as_they_are_once_it_is_trained():
    """Trained on (x − ½) / ¼, it is tested on x: as if images had been x / 4 + ½ all along."""
    always, training = (
        Build(resnet8, 10, CIFAR, (0.5,) * 3, (0.25,) * 3, {"normalised": when})() for when in ("always", "training")
    )
    params.load(training, params.of(always))
    x = torch.rand(4, *CIFAR, generator=torch.Generator().manual_seed(0))
    assert torch.equal(training.train()(x), always.train()(x))
    torch.testing.assert_close(training.eval()(x), always.eval()(x / 4 + 0.5), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(training(x), always(x), atol=1e-2)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_model_ends_in_its_head(name):
    net = made(name)
    found, head = head_of(net)
    assert (found, head.in_features, head.out_features) == (*HEADS[name], 10)
    z, logits = features(net, images(name))
    assert z.shape == (2, HEADS[name][1])
    assert torch.equal(head(z), logits)
    assert (z >= 0).all() or name == "cct"


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_model_in_eval_mode_answers_the_same_twice(name):
    net, x = made(name), images(name)
    before, first = params.of(net), net(x)
    assert torch.equal(net(x), first)
    assert trees.equal(params.of(net), before)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "mlp"])
@torch.no_grad()
def test_model_is_channels_last_and_answers_as_the_contiguous_one(name):
    build, net, x = recipe(name), made(name), images(name)
    contiguous = build.make(10, build.shape, net.normalise).eval()
    params.load(contiguous, params.of(net))
    convolutions = [module for module in net.modules() if isinstance(module, nn.Conv2d)]
    assert all(module.weight.is_contiguous(memory_format=torch.channels_last) for module in convolutions)
    torch.testing.assert_close(contiguous(x), net(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", [name for name in MODELS if name not in ("mlp", "fedtta-cnn", "simple-cnn")])
def test_model_trains_its_norms_alone_as_tent_does(name):
    """Torch's own group norm of channels-last images crashes the process here, whether the rest is frozen or not."""
    net, x = copy.deepcopy(made(name)), images(name)
    free = torch.autograd.grad(net(x).square().sum(), affine_of(net))
    net.requires_grad_(False)
    trained = [tensor.requires_grad_() for tensor in affine_of(net)]
    alone = torch.autograd.grad(net(x).square().sum(), trained)
    for a, b in zip(free, alone, strict=True):
        torch.testing.assert_close(a, b)
        assert a.isfinite().all()


@pytest.mark.parametrize("name", MODELS)
def test_model_of_a_seed_is_always_the_same(name):
    found = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        found.append(params.of(recipe(name)()))
    assert trees.equal(found[0], found[1]) and not trees.equal(found[0], found[2])


@pytest.mark.parametrize("name", MODELS)
def test_model_without_options_is_the_one_of_its_defaults(name):
    target = MODELS[name].load()
    values, _, problems = check(target, {}, "model")
    shape = SHAPES.get(name, CIFAR)
    assert not problems and size(target, 10, shape, **values) == size(target, 10, shape)


def test_options_of_models_are_checked():
    _, _, problems = check(resnet8, {"stem": "mnist"}, "model")
    assert problems == ["model.stem: expected 'imagenet' or 'cifar'; found 'mnist'"]
    assert check(resnet20_gn, {"groups": 0}, "model")[2] and check(WideResNet, {"widht": 2}, "model")[2]


# FedTTA's and BTFL's CNNs


def test_fedtta_cnn_has_the_papers_parameters():
    """CIFAR-10: convolutions 76 · 32 + 801 · 64, linear 4,097 · 512 + 513 · 10: 2,432 + 51,264 + 2,097,664 + 5,130.

    F-MNIST: 26 · 32 + 51,264 + 3,137 · 512 + 5,130 = 1,663,370. FEMNIST: 832 + 51,264 + 3,137 · 2,048
    + 2,049 · 62 = 6,603,710.
    """
    assert size(FedTTACNN, 10, CIFAR) == 2_156_490
    assert size(FedTTACNN, 10, (1, 28, 28)) == 1_663_370
    assert size(FedTTACNN, 62, (1, 28, 28), hidden=2048) == 6_603_710


def test_fedtta_cnn_has_three_widths():
    """Small: 76 · 16 + 401 · 32 + 2,049 · 512 + 5,130; big: 76 · 64 + 1,601 · 128 + 8,193 · 512 + 5,130."""
    assert size(FedTTACNN, 10, CIFAR, width="small") == 1_216 + 12_832 + 1_049_088 + 5_130
    assert size(FedTTACNN, 10, CIFAR, width="big") == 4_864 + 204_928 + 4_194_816 + 5_130


def test_simple_cnn_has_the_papers_parameters():
    """75 · 32 + 800 · 64 + 1,600 · 64 + 64 · 10 = 156,640; biases 32 + 64 + 64 + 10; norms 2 · (32 + 64)."""
    assert size(SimpleCNN, 10, CIFAR) == 156_640
    assert size(SimpleCNN, 10, CIFAR, bias=True) == 156_640 + 170
    assert size(SimpleCNN, 10, CIFAR, batch_norm=True) == 156_640 + 192


def test_simple_cnn_norms_follow_the_convolutions():
    net, seen = SimpleCNN(10, CIFAR, nn.Identity(), batch_norm=True), []
    for name, layer in net.named_children():
        layer.register_forward_hook(lambda module, inputs, output, name=name: seen.append(name))
    net(torch.zeros(2, *CIFAR))
    assert seen == ["normalise", "conv1", "bn1", "conv2", "bn2", "hidden", "head"]
    assert isinstance(net.bn1, nn.BatchNorm2d) and isinstance(net.bn2, nn.BatchNorm2d)


# Residual networks


def test_resnet8_has_the_papers_parameters():
    """Stem 9,408 + 128; blocks 73,984, 230,144 and 919,040; head 257 · 10: 1,235,274.

    Blocks: 2 · 36,864 + 256; 73,728 + 147,456 + 512 and a shortcut of 8,192 + 256; 294,912 + 589,824 + 1,024
    and 32,768 + 512. The small stem has 1,728 weights instead of 9,408.
    """
    assert size(resnet8, 10, CIFAR) == 1_235_274
    assert size(resnet8, 10, CIFAR, stem="cifar") == 1_235_274 - 9_408 + 1_728


def test_resnet18_and_50_have_torchvisions_parameters():
    assert size(resnet18, 1000, (3, 224, 224)) == 11_689_512
    assert size(resnet50, 1000, (3, 224, 224)) == 25_557_032


@pytest.mark.parametrize(
    ("make", "depths", "convolutions", "wide"),
    [(resnet18, (2, 2, 2, 2), 2, (2, 3, 4)), (resnet50, (3, 4, 6, 3), 3, (1, 2, 3, 4))],
)
def test_resnets_have_torchvisions_names(make, depths, convolutions, wide):
    layers = {"conv1": "bn1"}
    for stage, depth in enumerate(depths, 1):
        for block in range(depth):
            prefix = f"layer{stage}.{block}"
            layers |= {f"{prefix}.conv{i}": f"{prefix}.bn{i}" for i in range(1, convolutions + 1)}
        if stage in wide:
            layers[f"layer{stage}.0.downsample.0"] = f"layer{stage}.0.downsample.1"
    tensors = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    expected = {f"{conv}.weight" for conv in layers} | {f"{bn}.{key}" for bn in layers.values() for key in tensors}
    with torch.device("meta"):
        net = make(1000, (3, 224, 224), nn.Identity())
    assert set(net.state_dict()) == expected | {"fc.weight", "fc.bias"}


@pytest.mark.parametrize(
    ("stem", "sides"), [("imagenet", [16, 8, 8, 4, 2]), ("cifar", [32, 32, 32, 16, 8])], ids=["imagenet", "cifar"]
)
def test_resnet_stems_leave_a_quarter_or_all_of_the_image(stem, sides):
    net, seen = resnet8(10, CIFAR, nn.Identity(), stem=stem), []
    for layer in (net.conv1, net.maxpool, net.layer1, net.layer2, net.layer3):
        layer.register_forward_hook(lambda module, inputs, output: seen.append(output.shape[-1]))
    net(torch.zeros(2, *CIFAR))
    assert seen == sides


def test_resnet50_strides_in_the_3x3_convolution():
    with torch.device("meta"):
        block = resnet50(10, CIFAR, nn.Identity()).layer2[0]
    assert [layer.stride for layer in (block.conv1, block.conv2, block.conv3)] == [(1, 1), (2, 2), (1, 1)]


def test_resnet20_gn_has_its_parameters_by_hand():
    """Stem 432 + 32; stages 14,016, 51,648 and 205,696; head 65 · 10: 272,474.

    Stages: 6 · 2,304 + 6 · 32; 4,608 + 5 · 9,216 + 6 · 64 and a shortcut of 512 + 64; 18,432 + 5 · 36,864
    + 6 · 128 and 2,048 + 128. Twice as wide, convolutions behind the stem have four times as many weights; the
    stem, the norms and the head's weights, where one side stays, twice as many.
    """
    assert size(resnet20_gn, 10, CIFAR) == 272_474
    scales = 32 + 192 + 384 + 64 + 768 + 128
    inner = 272_474 - 432 - scales - 650
    assert size(resnet20_gn, 10, CIFAR, width=2) == 4 * inner + 2 * (432 + scales + 640) + 10


def test_resnet20_gn_has_group_norms_only_and_groups_that_divide():
    with torch.device("meta"):
        net = resnet20_gn(10, CIFAR, nn.Identity(), groups=4, width=3)
    layers = norms.norm_layers(net, "tent").values()
    assert len(layers) == 21 and all(isinstance(layer, nn.GroupNorm) and layer.num_groups == 4 for layer in layers)
    with pytest.raises(UnsupportedModel, match="groups that divide its 16 channels, found 3"):
        resnet20_gn(10, CIFAR, nn.Identity(), groups=3)


def test_resnext29_has_its_parameters_by_hand():
    """Stem 1,728 + 128; stages 302,592, 1,301,504 and 5,191,680; head 1,025 · 10: 6,807,882.

    A block of stage s has D = 128 · 2^s inner channels in 4 groups and 2 D outputs: I · D + D · D/4 · 9 + D · 2D
    weights and 2 · 4 D of norms from I inputs, and the first block a shortcut of I · 2D + 4 D.
    Stage 1: 8,192 + 36,864 + 32,768 + 1,024 + 16,896, then twice 32,768 + 36,864 + 32,768 + 1,024.
    Stage 2: 65,536 + 147,456 + 131,072 + 2,048 + 132,096, then twice 131,072 + 147,456 + 131,072 + 2,048.
    Stage 3: 262,144 + 589,824 + 524,288 + 4,096 + 526,336, then twice 524,288 + 589,824 + 524,288 + 4,096.
    With 100 classes the head has 102,500: 6.9 million, as RobustBench's for CIFAR-100.
    """
    assert size(resnext29, 10, CIFAR) == 6_807_882
    assert size(resnext29, 100, CIFAR) == 6_900_132


def test_wide_resnet_has_the_papers_parameters():
    """WRN-28-10: 36,479,194, the paper's 36.5 million; WRN-16-2: the paper's 0.7 million.

    By hand, a block of WRN-16-2 is norm + convolution, twice, and the first of a stage has a shortcut besides:
    stem 432; two blocks in each stage as written below; last norm 256; head 129 · 10.
    """
    assert size(WideResNet, 10, CIFAR, depth=28, width=10) == 36_479_194
    stage1 = (32 + 4_608 + 64 + 9_216 + 512) + (64 + 9_216 + 64 + 9_216)
    stage2 = (64 + 18_432 + 128 + 36_864 + 2_048) + (128 + 36_864 + 128 + 36_864)
    stage3 = (128 + 73_728 + 256 + 147_456 + 8_192) + (256 + 147_456 + 256 + 147_456)
    assert size(WideResNet, 10, CIFAR) == 432 + stage1 + stage2 + stage3 + 256 + 1_290 == 691_674


@pytest.mark.parametrize("depth", [4, 9, 27])
def test_wide_resnet_refuses_depths_that_are_no_blocks(depth):
    with pytest.raises(UnsupportedModel, match=f"a depth of 10, 16, 22, 28 and so on, found {depth}"):
        WideResNet(10, CIFAR, nn.Identity(), depth=depth)


def silent(layer):
    """The layer with weights of zero (and no bias)."""
    for tensor in layer.parameters():
        nn.init.zeros_(tensor)


def test_residual_blocks_without_a_residual_are_their_shortcut():
    x = torch.randn(2, 16, 5, 5)
    basic, bottleneck, wide = BasicBlock(16, 16, 1), Bottleneck(16, 4, 1), WideBlock(16, 16, 1)
    for layer in (basic.conv2, bottleneck.conv3, wide.conv2):
        silent(layer)
    assert torch.equal(basic(x), x.relu()) and torch.equal(bottleneck(x), x.relu())
    assert torch.equal(wide(x), x)


def test_wide_shortcut_starts_from_the_active_input():
    """BN of zeros is zero, so with scale 1 and shift −1 ReLU leaves nothing, and neither path says anything."""
    block = WideBlock(4, 8, 2).eval()
    nn.init.constant_(block.bn1.bias, -1)
    assert torch.equal(block(torch.zeros(2, 4, 6, 6)), torch.zeros(2, 8, 3, 3))
    assert block(torch.full((2, 4, 6, 6), 3.0)).abs().sum() > 0


def test_residual_networks_have_hes_initialisation():
    """Variance 2 / (9 · 256) of 589,824 weights; the estimate's standard deviation is 0.2 % of it."""
    torch.manual_seed(0)
    weight = resnet8(10, CIFAR, nn.Identity()).layer3[0].conv2.weight
    assert weight.var().item() == pytest.approx(2 / (9 * 256), rel=0.01)


# CCT


def test_cct_has_its_parameters_by_hand():
    """CCT-4/3x2 482,123, and CCT-2/3x2 283,723: the paper's 0.28 million.

    Tokenizer 27 · 64 + 576 · 128 = 75,456; positions 64 · 128; final norm, pool and head 256 + 129 + 1,290. A layer:
    norms 2 · 256, attention 128 · 384 + 129 · 128, perceptron 2 · 129 · 128: 99,200.
    """
    assert size(CCT, 10, CIFAR) == 75_456 + 8_192 + 4 * 99_200 + 256 + 129 + 1_290 == 482_123
    assert size(CCT, 10, CIFAR, layers=2) == 283_723
    assert size(CCT, 10, CIFAR, positions="sine") == 482_123 - 8_192


def test_cct_attention_is_torchs():
    torch.manual_seed(0)
    layer, x = Encoder(8, 2, 8), torch.randn(3, 5, 8)
    q, k, v = (part.unflatten(2, (2, 4)).transpose(1, 2) for part in layer.qkv(x).chunk(3, 2))
    expected = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(3, 5, 8)
    torch.testing.assert_close(layer.attend(x), expected)


def test_cct_encoder_without_a_residual_is_the_identity():
    layer, x = Encoder(8, 2, 8), torch.randn(3, 5, 8)
    silent(layer.project)
    silent(layer.contract)
    assert torch.equal(layer(x), x)


def test_cct_pools_with_equal_weights_where_the_scores_are_equal():
    net, seen = CCT(10, CIFAR, nn.Identity()), []
    silent(net.pool)
    net.norm.register_forward_hook(lambda module, inputs, output: seen.append(output))
    z, _ = features(net, torch.rand(2, *CIFAR))
    torch.testing.assert_close(z, seen[0].mean(1))


def test_cct_sines_are_fixed_and_of_the_first_tokens_known():
    """Token 0: sin 0, cos 0, …; token 1: sin 1, cos 1, then sin and cos of 1 / 10000^(1/2) = 0.01."""
    net = CCT(10, CIFAR, nn.Identity(), width=4, positions="sine")
    expected = torch.tensor([[0, 1, 0, 1], [0.841471, 0.540302, 0.0099998, 0.99995]])
    torch.testing.assert_close(net.positions[:2], expected, rtol=0, atol=1e-6)
    assert "positions" not in params.of(net)


def test_cct_can_be_differentiated_twice():
    net = CCT(3, (1, 8, 8), nn.Identity(), layers=1, width=8)
    weights = list(net.parameters())
    first = torch.autograd.grad(net(torch.rand(2, 1, 8, 8)).square().sum(), weights, create_graph=True)
    second = torch.autograd.grad(sum(g.square().sum() for g in first), net.encoders[0].qkv.weight)
    assert second[0].isfinite().all() and second[0].abs().sum() > 0


def test_cct_refuses_heads_that_do_not_divide():
    with pytest.raises(UnsupportedModel, match="an even width that its 3 heads divide, found 128"):
        CCT(10, CIFAR, nn.Identity(), heads=3)


# Shapes

SMALLEST = [
    (FedTTACNN, {}, 4),
    (SimpleCNN, {}, 16),
    (resnet8, {}, 9),
    (resnet8, {"stem": "cifar"}, 3),
    (resnet18, {}, 17),
    (resnet18, {"stem": "cifar"}, 5),
    (resnet20_gn, {}, 3),
    (resnext29, {}, 3),
    (WideResNet, {"depth": 10, "width": 1}, 3),
    (CCT, {"layers": 1}, 4),
]


@pytest.mark.parametrize(("make", "options", "least"), SMALLEST)
@torch.no_grad()
def test_models_fit_images_of_their_least_side_and_of_unequal_sides(make, options, least):
    for shape in ((1, least, least), (2, least, least + 7), (4, least + 5, least)):
        assert make(3, shape, nn.Identity(), **options)(torch.zeros(2, *shape)).shape == (2, 3)


@pytest.mark.parametrize(("make", "options", "least"), SMALLEST)
def test_models_refuse_smaller_images(make, options, least):
    with pytest.raises(UnsupportedModel, match=f"at least {least}x{least} pixels, found 40x{least - 1}"):
        make(3, (3, 40, least - 1), nn.Identity(), **options)


def test_resnet_with_the_large_stem_points_to_the_small_one():
    with pytest.raises(UnsupportedModel, match="for small images use stem: cifar"):
        resnet18(10, (3, 8, 8), nn.Identity())
