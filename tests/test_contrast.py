"""The contrastive loss by hand and against golden vectors."""

import math
from dataclasses import replace

import pytest
import torch
from torch import nn

import toys
from acclimate.contrast import PROJECTION, Contrastive, contrast
from acclimate.data.augment import Views
from acclimate.errors import UnsupportedModel
from acclimate.models.extended import Extended
from acclimate.models.simple_cnn import SimpleCNN

ROWS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])  # two images, two equal views of each
# An anchor's positive has similarity 1/τ, the two others 0: −ln(e^(1/τ) / (e^(1/τ) + 2)).
ALIKE = {tau: math.log(1 + 2 * math.exp(-1 / tau)) for tau in (0.5, 1.0)}


@pytest.mark.parametrize("tau", ALIKE)
def test_contrast_of_images_as_themselves_by_hand(tau):
    found = contrast(ROWS, torch.tensor([0, 1]).repeat(2), tau)
    torch.testing.assert_close(found, torch.full((4,), ALIKE[tau]))


def test_contrast_of_one_class_by_hand():
    """All four belong together: for each anchor the mean over three of −ln(share): ln(e + 2) − 1/3."""
    found = contrast(ROWS, torch.zeros(4), 1.0)
    torch.testing.assert_close(found, torch.full((4,), math.log(math.e + 2) - 1 / 3))


def test_contrast_of_a_row_that_belongs_to_no_other_teaches_nothing():
    z = torch.randn(3, 2, requires_grad=True)
    found = contrast(z, torch.arange(3), 0.1)
    assert found.tolist() == [0, 0, 0]
    assert torch.autograd.grad(found.sum(), z)[0].abs().sum() == 0


def test_contrast_with_features_of_length_one_does_not_ask_how_long_they_were():
    labels = torch.tensor([0, 1, 0, 1])
    assert torch.equal(contrast(4 * ROWS, labels, 1.0), contrast(ROWS, labels, 1.0))
    assert contrast(4 * ROWS, labels, 1.0, normalise=False)[0] < contrast(ROWS, labels, 1.0, normalise=False)[0]


@pytest.mark.parametrize("tau", [0.07, 0.1, 1.0])
@pytest.mark.parametrize("length", ["norm", "raw"])
@pytest.mark.parametrize("kind", ["sup", "us", "us1"])
def test_contrast_agrees_with_golden_vectors(kind, length, tau):
    arrays = toys.golden("fedicon/fedicon_golden.npz")
    z = torch.from_numpy(arrays["z"]).requires_grad_()
    who = torch.from_numpy(arrays["labels"]) if kind == "sup" else torch.arange(6).repeat(2)
    each = contrast(z, who, tau, length == "norm")[: 6 if kind == "us1" else 12]
    torch.testing.assert_close(each.detach(), torch.from_numpy(arrays[f"{kind}_{length}_tau{tau}_per"]), **toys.TIGHT)
    (found,) = torch.autograd.grad(each.sum(), z)
    torch.testing.assert_close(found, torch.from_numpy(arrays[f"{kind}_{length}_tau{tau}_grad_sum"]), **toys.TIGHT)


class Seen(nn.Module):
    """Two numbers per image, and what came in."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 2)
        self.seen = []

    def forward(self, x):
        self.seen.append(x)
        return self.head(x.flatten(1))


def mirrored(x):
    return x.flip(0)


X = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).view(2, 1, 1, 2)


def test_contrastive_loss_is_of_two_views_and_their_mean_or_sum():
    """The views are the images in other order: [x₁, x₀, x₁, x₀], so each image's other view is its equal again."""
    net, loss = Seen(), Contrastive(views=lambda x: x.flip(0), temperature=1.0)
    assert loss.loss(net, X).item() == pytest.approx(ALIKE[1.0])
    assert replace(loss, reduction="sum").loss(net, X).item() == pytest.approx(4 * ALIKE[1.0])
    assert torch.equal(net.seen[0], torch.cat([X, X]).flip(0))


def test_contrastive_loss_with_labels_is_supervised():
    loss = Contrastive(views=lambda x: x, temperature=1.0).loss(Seen(), X, torch.zeros(2))
    assert loss.item() == pytest.approx(math.log(math.e + 2) - 1 / 3)


def test_contrastive_loss_of_one_side_has_the_images_themselves_as_anchors():
    net = Seen()
    loss = Contrastive(views=mirrored, temperature=1.0, one_sided=True, reduction="sum").loss(net, X)
    assert torch.equal(net.seen[0], torch.cat([X, X.flip(0)]))
    # Two anchors, and now the other view is the other image: similarity 0, while a stranger is equal.
    assert loss.item() == pytest.approx(2 * math.log(math.e + 2))


def test_contrastive_features_may_be_taken_before_the_activation():
    net, x = SimpleCNN(10, (3, 32, 32), nn.Identity()), torch.rand(5, 3, 32, 32)
    after, before = Contrastive().encode(net, x), Contrastive(layer="hidden").encode(net, x)
    assert (before < 0).any()
    assert torch.equal(before.relu(), after)
    assert Contrastive().width(net) == Contrastive(layer="hidden").width(net) == 64
    with pytest.raises(UnsupportedModel, match="no linear layer 'hiden'; it has: hidden, head"):
        Contrastive(layer="hiden").encode(net, x)


def test_contrastive_features_pass_the_projection_where_there_is_one():
    plain = Seen()
    extended = Extended(plain, **{PROJECTION: nn.Linear(2, 3)})
    assert Contrastive().encode(extended, X).shape == (2, 3)
    assert torch.equal(Contrastive().encode(plain, X), X.flatten(1))


def test_contrastive_views_are_what_options_say():
    assert Contrastive().views == Views(scale=(0.5, 1.0), flip=0.5, jitter=0.8)
