"""Augmentations: each beside what a pencil gives, then what holds for all of them."""

import colorsys

import numpy as np
import pytest
import torch

from acclimate.data import augment
from acclimate.data.augment import BRIGHTNESS, CONTRAST, SATURATION, Crops, Views, crops, mirrored

LAST = torch.channels_last
SHIFTS = [(down, right) for down in (-1, 0, 1) for right in (-1, 0, 1)]


def picture(*colours):
    """One image with one row of pixels of these colours."""
    return torch.tensor(colours).T.reshape(1, len(colours[0]), 1, len(colours))


def photos(count=64, channels=3, size=16):
    return torch.rand(count, channels, size, size).contiguous(memory_format=LAST)


def colour_of(x, pixel=0):
    return x[0, :, 0, pixel].tolist()


def recoloured(x, kind, factor):
    return augment.recolour_(x.clone(), torch.full((len(x),), kind), torch.full((len(x),), factor))


# Colours


@pytest.mark.parametrize(
    ("turn", "colour", "expected"),
    [
        (0.5, (1.0, 0.0, 0.0), (0.0, 1.0, 1.0)),  # red to cyan
        (1 / 3, (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)),  # red to green
        (-1 / 3, (1.0, 0.0, 0.0), (0.0, 0.0, 1.0)),  # red to blue
        (1 / 6, (0.0, 0.0, 0.5), (0.5, 0.0, 0.5)),  # dark blue to dark magenta
        (1 / 12, (0.75, 0.25, 0.25), (0.75, 0.5, 0.25)),  # half way to yellow: low 0.25, chroma 0.5
        (0.3, (0.4, 0.4, 0.4), (0.4, 0.4, 0.4)),  # grey has no hue
    ],
)
def test_turn_hue_goes_around_the_circle(turn, colour, expected):
    assert colour_of(augment.turn_hue(picture(colour), torch.tensor([turn]))) == pytest.approx(expected, abs=1e-6)


def test_turn_hue_is_that_of_hsv():
    torch.manual_seed(0)
    x, turns = torch.rand(40, 3, 4, 4), torch.linspace(-0.5, 0.5, 40)
    turned = augment.turn_hue(x, turns)
    for image, after, turn in zip(x, turned, turns.tolist(), strict=True):
        for before, found in zip(image.flatten(1).T.tolist(), after.flatten(1).T.tolist(), strict=True):
            hue, saturation, value = colorsys.rgb_to_hsv(*before)
            assert found == pytest.approx(colorsys.hsv_to_rgb((hue + turn) % 1, saturation, value), abs=5e-6)


def test_brightness_is_a_factor_and_ends_at_white():
    x = picture((0.2, 0.4, 0.8))
    assert colour_of(recoloured(x, BRIGHTNESS, 2.0)) == pytest.approx([0.4, 0.8, 1.0])
    assert colour_of(recoloured(x, BRIGHTNESS, 0.5)) == pytest.approx([0.1, 0.2, 0.4])


def test_contrast_moves_to_and_from_the_mean_grey():
    """Black and white: the mean is 0.5; factor 0.5 gives 0.25 and 0.75. Greys 0.4 and 0.6 at 2: 0.3 and 0.7."""
    ends, middle = picture((0.0,) * 3, (1.0,) * 3), picture((0.4,) * 3, (0.6,) * 3)
    assert recoloured(ends, CONTRAST, 0.5)[0, 0, 0].tolist() == pytest.approx([0.25, 0.75])
    assert recoloured(middle, CONTRAST, 2.0)[0, 2, 0].tolist() == pytest.approx([0.3, 0.7])
    assert recoloured(ends, CONTRAST, 0.0)[0, 1, 0].tolist() == pytest.approx([0.5, 0.5])


def test_saturation_moves_to_and_from_the_grey_of_each_pixel():
    """Red is 0.299 of grey: at 0.5 it is (1 + 0.299) / 2 and 0.299 / 2; at 2 green and blue would be negative."""
    red = picture((1.0, 0.0, 0.0), (0.0, 0.0, 1.0))
    assert colour_of(recoloured(red, SATURATION, 0.5)) == pytest.approx([0.6495, 0.1495, 0.1495])
    assert colour_of(recoloured(red, SATURATION, 2.0)) == [1.0, 0.0, 0.0]
    assert colour_of(recoloured(red, SATURATION, 0.0), pixel=1) == pytest.approx([0.114] * 3)


def test_recolour_treats_each_image_by_its_own_kind():
    x = picture((0.8, 0.4, 0.2)).repeat(3, 1, 1, 1)
    kinds = torch.tensor([SATURATION, BRIGHTNESS, CONTRAST])
    together = augment.recolour_(x.clone(), kinds, torch.full((3,), 0.5))
    alone = [recoloured(x[:1], kind, 0.5) for kind in kinds.tolist()]
    assert torch.equal(together, torch.cat(alone))


def test_jitter_of_nothing_changes_nothing():
    torch.manual_seed(0)
    x = photos()
    assert torch.equal(augment.jitter(x, p=0.0), x)
    assert torch.equal(augment.jitter(x, 0.0, 0.0, 0.0, 0.0, p=1.0), augment.jitter(x, 0.0, 0.0, 0.0, 0.0, p=0.0))


def test_jitter_with_one_amount_is_that_change():
    """Brightness alone: every pixel of an image has the same factor, in [0.6, 1.4], and images differ."""
    torch.manual_seed(0)
    x = photos(500, size=4) * 0.5 + 0.1
    factors = (augment.jitter(x, 0.4, 0.0, 0.0, 0.0, p=1.0) / x).flatten(1)
    assert (factors.amax(1) - factors.amin(1)).max() < 1e-4
    assert 0.6 <= factors.min() < 0.62 and 1.38 < factors.max() <= 1.4001
    assert factors.mean() == pytest.approx(1.0, abs=0.03)  # three standard errors: 3 · 0.23 / √500


def test_jitter_recolours_the_share_it_is_told():
    torch.manual_seed(0)
    x = photos(2000, size=2)
    changed = (augment.jitter(x, p=0.8) != x).flatten(1).any(1).float().mean()
    assert changed == pytest.approx(0.8, abs=0.03)


def test_jitter_takes_changes_in_another_order_for_each_image():
    """Black and white become greys that still add up to 1 only where brightness rises and then contrast falls.

    That is an eighth of the images; with one order for all it would be a quarter or none.
    """
    torch.manual_seed(0)
    made = augment.jitter(picture((0.0,), (1.0,)).repeat(4000, 1, 1, 1), 0.4, 0.4, p=1.0)[:, 0, 0]
    found = ((made.sum(1) - 1).abs() < 1e-6) & (made[:, 0] > 0)
    assert found.float().mean() == pytest.approx(1 / 8, abs=0.02)


def test_grey_has_one_value_per_pixel():
    x = picture((1.0, 0.0, 0.0), (0.2, 0.4, 0.6))
    grey = augment.grey(x, 1.0)
    assert colour_of(grey) == pytest.approx([0.299] * 3)
    assert colour_of(grey, 1) == pytest.approx([0.0598 + 0.2348 + 0.0684] * 3)
    assert torch.equal(augment.grey(x, 0.0), x)


# Places


def test_resized_crop_of_everything_is_the_identity():
    x = photos(8, size=28)
    assert torch.allclose(augment.resized_crop(x, (1.0, 1.0), (1.0, 1.0)), x, atol=1e-5)


def test_resized_crop_of_a_quarter_is_one_of_its_boxes_enlarged():
    """A box of 2 x 2 of 4 x 4 pixels, spread over 4 x 4: its corners stay, and between them are 3/4 and 1/4."""
    torch.manual_seed(0)
    x = torch.rand(200, 1, 4, 4)
    found = augment.resized_crop(x, (0.25, 0.25), (1.0, 1.0))
    weights = torch.tensor([[1.0, 0.0], [0.75, 0.25], [0.25, 0.75], [0.0, 1.0]])
    places = set()
    for image, crop in zip(x[:, 0], found[:, 0], strict=True):
        fits = [
            (top, left)
            for top in range(3)
            for left in range(3)
            if torch.allclose(weights @ image[top : top + 2, left : left + 2] @ weights.T, crop, atol=1e-5)
        ]
        assert len(fits) == 1
        places.update(fits)
    assert len(places) == 9  # every place is possible


def test_resized_crop_takes_areas_and_shapes_as_told():
    """A slope across the image tells the width of its box, one down the image its height.

    Of uniform areas a, those above 3/4 fit only with a share −ln a / ln(4/3) of the shapes: their mean is
    (0.15625 + 0.09894) / (0.25 + 0.11901) = 0.692, and a little more with boxes rounded to whole pixels.
    """
    torch.manual_seed(0)
    slope = torch.arange(32) / 32
    across = torch.stack([slope.expand(32, 32), slope.view(32, 1).expand(32, 32)]).expand(4000, 2, 32, 32)
    crop = augment.resized_crop(across, (0.5, 1.0))
    wide = (crop[:, 0, 0].amax(1) - crop[:, 0, 0].amin(1)) * 32 + 1
    high = (crop[:, 1, :, 0].amax(1) - crop[:, 1, :, 0].amin(1)) * 32 + 1
    area = wide * high / 1024
    assert area.min() > 0.47 and area.max() <= 1.0001  # boxes are whole pixels
    assert area.mean() == pytest.approx(0.697, abs=0.01)
    assert (wide / high).log().mean() == pytest.approx(0.0, abs=0.01)
    assert 0.7 < (wide / high).min() < 0.8 and 1.25 < (wide / high).max() < 1.4


def test_resized_crop_that_never_fits_is_the_middle():
    """Twice as wide as high in 4 x 4 pixels: at full area no box fits, so the two rows in the middle."""
    x = torch.arange(16.0).view(1, 1, 4, 4) / 16
    crop = augment.resized_crop(x, (1.0, 1.0), (2.0, 2.0), size=(2, 4))
    assert torch.allclose(crop, x[:, :, 1:3], atol=1e-6)


def test_resized_crop_has_the_size_asked_for():
    assert augment.resized_crop(photos(3), size=(8, 20)).shape == (3, 3, 8, 20)


def test_flip_is_an_exact_mirror():
    x = photos(4)
    assert torch.equal(augment.flip(x, 1.0), x.flip(3))
    assert torch.equal(augment.flip(x, 0.0), x)


def test_flip_mirrors_the_share_it_is_told():
    torch.manual_seed(0)
    x = torch.tensor([0.0, 1.0]).expand(4000, 1, 1, 2)
    assert augment.flip(x, 0.3)[:, 0, 0, 0].mean() == pytest.approx(0.3, abs=0.025)


# All together

ALL = {
    "views": Views(grey=0.2),
    "crop": augment.resized_crop,
    "flip": augment.flip,
    "jitter": lambda x: augment.jitter(x, 1.0, 2.0, 2.0, 0.5, 1.0),
    "grey": lambda x: augment.grey(x, 0.5),
}


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", ALL)
def test_augmentations_keep_range_shape_and_memory_order_and_leave_the_input(name, channels):
    torch.manual_seed(0)
    x = photos(32, channels)
    before, made = x.clone(), ALL[name](x)
    assert torch.equal(x, before)
    assert made.min() >= 0 and made.max() <= 1
    assert made.shape[1:] == x.shape[1:]
    assert made.is_contiguous(memory_format=LAST)
    assert ALL[name](x.contiguous()).is_contiguous()


@pytest.mark.parametrize("name", ALL)
def test_augmentations_are_the_same_for_the_same_seed(name):
    x, made = photos(), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        made.append(ALL[name](x))
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])


def test_views_do_not_depend_on_memory_order():
    x, made = photos(), []
    for images in (x, x.contiguous()):
        torch.manual_seed(0)
        made.append(Views()(images))
    assert torch.allclose(made[0], made[1], atol=1e-6)


def test_views_with_nothing_to_do_are_the_images():
    x = photos()
    views = Views(scale=(1.0, 1.0), ratio=(1.0, 1.0), flip=0.0, jitter=0.0)
    assert torch.allclose(views(x), x, atol=1e-6)


def test_views_of_digits_are_never_mirrored():
    """Ink on the left stays on the left in every crop of at least half of the image."""
    x = torch.zeros(200, 1, 28, 28)
    x[..., :14] = 1
    torch.manual_seed(0)
    views = Views(flip=0.0, jitter=0.0)(x)
    assert (views[..., :14].sum((1, 2, 3)) >= views[..., 14:].sum((1, 2, 3))).all()


# Crops


def test_mirrored_is_what_numpy_calls_symmetric():
    """Also where the margin is wider than the image, which then comes and goes."""
    image = np.arange(12.0).reshape(1, 3, 4)
    for margin in (1, 3, 4, 11):
        expected = np.pad(image, [(0, 0), (margin, margin), (margin, margin)], mode="symmetric")
        assert torch.equal(mirrored(torch.from_numpy(image), margin), torch.from_numpy(expected))


@pytest.mark.parametrize("pad", [mirrored, lambda image, margin: torch.nn.functional.pad(image, [margin] * 4)])
def test_crops_are_windows_of_the_padded_image(pad):
    torch.manual_seed(0)
    image = torch.arange(1.0, 13.0).view(1, 3, 4)
    padded = pad(image, 2)
    windows = [padded[:, i : i + 3, j : j + 4] for i in range(5) for j in range(5)]
    mirrored = [window.flip(2) for window in windows]
    plain, both = (
        crops(padded.expand(number, -1, -1, -1), (3, 4), flip) for number, flip in ((400, False), (800, True))
    )
    assert plain.shape == (400, 1, 3, 4)
    for copies, possible in ((plain, windows), (both, windows + mirrored)):
        seen = [any(torch.equal(copy, window) for copy in copies) for window in possible]
        assert all(seen)
        assert all(any(torch.equal(copy, window) for window in possible) for copy in copies)
    assert any(torch.equal(copy, image.flip(2)) for copy in both)


def test_crops_move_each_image_by_itself_and_leave_black_behind():
    """A batch of images of one bright pixel each: every one is somewhere in its own 3x3 places, or off the edge."""
    torch.manual_seed(0)
    x = torch.zeros(300, 1, 5, 5).contiguous(memory_format=LAST)
    x[:, 0, 2, 0] = torch.arange(1.0, 301.0)
    moved = Crops(margin=1, flip=False)(x)
    assert moved.shape == x.shape
    assert moved.is_contiguous(memory_format=LAST)
    places = {(int(r), int(c)) for image in moved for r, c in image[0].nonzero()}
    assert places == {(r, c) for r in (1, 2, 3) for c in (0, 1)}
    gone = (moved.flatten(1).sum(1) == 0).sum()
    assert 60 <= gone <= 140  # a third go over the edge
    assert all(image.sum() in (0, value) for image, value in zip(moved, range(1, 301), strict=True))


def test_crops_mirror_about_half_of_the_images():
    torch.manual_seed(0)
    x = photos(200)
    moved = Crops(margin=1, flip=True)(x)[:, :, 1:-1, 1:-1]
    shown = torch.stack([(moved == x.roll(shift, (2, 3))[:, :, 1:-1, 1:-1]).all((1, 2, 3)) for shift in SHIFTS])
    turned = torch.stack(
        [(moved == x.flip(3).roll(shift, (2, 3))[:, :, 1:-1, 1:-1]).all((1, 2, 3)) for shift in SHIFTS]
    )
    assert (shown.any(0) ^ turned.any(0)).all()
    assert 70 <= turned.any(0).sum() <= 130
