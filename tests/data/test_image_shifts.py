import math

import pytest
import torch

import toys
from acclimate.data.image_shifts import Blur, Both, Brightness, Clean, Contrast, Noise, Rotation

ALL = [
    Clean(),
    Noise(0.3),
    Blur(0.7),
    Contrast(0.4),
    Contrast(-1.0),
    Brightness(0.2),
    Rotation(20),
    Both(Noise(0.2), Rotation(-10)),
]


def image(*rows: list[int]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.uint8).view(1, 1, len(rows), -1)


def one(shift, *rows: list[int]) -> list[list[int]]:
    return shift(image(*rows), [0], 0)[0, 0].tolist()


@pytest.mark.parametrize("shift", ALL, ids=lambda shift: shift.name)
def test_shift_of_an_image_depends_on_its_id_and_seed_only(shift):
    images = torch.from_numpy(toys.pixels(4, channels=3)).permute(0, 3, 1, 2)
    before, ids = images.clone(), [11, 5, 7, 2]
    batch = shift(images, ids, 3)
    assert batch.dtype == torch.uint8 and batch.shape == images.shape
    for k, id in enumerate(ids):
        assert torch.equal(shift(images[k : k + 1], [id], 3)[0], batch[k])
    assert torch.equal(shift(images.flip(0), ids[::-1], 3), batch.flip(0))
    assert torch.equal(images, before)


def test_noise_differs_between_ids_and_seeds():
    grey = torch.full((2, 1, 6, 6), 128, dtype=torch.uint8)
    draw = Noise(0.1)(grey, [1, 2], 0)
    assert not torch.equal(draw[0], draw[1])
    assert not torch.equal(Noise(0.1)(grey, [1, 2], 1), draw)
    assert torch.equal(Noise(0.1)(grey, [1, 1], 0)[0], Noise(0.1)(grey, [1, 1], 0)[1])


def test_noise_has_the_spread_asked_for():
    """Grey with σ = 0.1: 25.5 levels; 10,000 draws determine it to about 1%."""
    draw = Noise(0.1)(torch.full((1, 1, 100, 100), 128, dtype=torch.uint8), [0], 0).double()
    assert draw.mean().item() == pytest.approx(128, abs=1)
    assert draw.std().item() == pytest.approx(25.5, rel=0.05)


def test_noise_of_nothing_changes_nothing():
    assert one(Noise(0.0), [0, 100, 255]) == [[0, 100, 255]]


def test_clean_changes_nothing():
    assert one(Clean(), [1, 2, 3]) == [[1, 2, 3]]


def test_brightness_adds_and_clips():
    """0.2 of 255 is 51: 10 → 61, 250 → 255; downwards 10 → 0."""
    assert one(Brightness(0.2), [10, 250]) == [[61, 255]]
    assert one(Brightness(-0.2), [10, 250]) == [[0, 199]]


def test_contrast_scales_distances_from_the_mean():
    """Mean of 20, 100, 180 is 100: ½ gives 60, 100, 140; −1 mirrors; 2 clips −60 and 260."""
    assert one(Contrast(0.5), [20, 100, 180]) == [[60, 100, 140]]
    assert one(Contrast(-1.0), [20, 100, 180]) == [[180, 100, 20]]
    assert one(Contrast(2.0), [20, 100, 180]) == [[0, 100, 255]]


def test_blur_spreads_by_the_gaussian():
    """σ = ½, so the radius is 2 and the weights are 1, e^−2, e^−8 over their sum 1 + 2 e^−2 + 2 e^−8."""
    weights = [math.exp(-2 * d * d) for d in (-2, -1, 0, 1, 2)]
    expected = [round(255 * w / sum(weights)) for w in weights]
    rows = one(Blur(0.5), *([[0, 0, 255, 0, 0]] * 3))
    assert rows == [expected] * 3  # the border repeats, so a vertical line is blurred sideways only
    assert expected == [0, 27, 201, 27, 0]


def test_blur_repeats_the_border():
    assert one(Blur(1.0), [70, 70], [70, 70]) == [[70, 70], [70, 70]]


def test_rotation_turns_counter_clockwise():
    """By 90 degrees the right column becomes the upper row."""
    assert one(Rotation(90), [1, 20], [30, 40]) == [[20, 40], [1, 30]]
    assert one(Rotation(180), [1, 20], [30, 40]) == [[40, 30], [20, 1]]


def test_rotation_fills_with_black():
    white = torch.full((1, 1, 8, 8), 255, dtype=torch.uint8)
    turned = Rotation(45)(white, [0], 0)[0, 0]
    assert turned[0, 0] == turned[7, 7] == 0 and turned[4, 4] == 255


def test_both_goes_in_order():
    """250 + 51 clips to 255, then − 51 is 204; the other way round nothing clips."""
    up, down = Brightness(0.2), Brightness(-0.2)
    assert one(Both(up, down), [250]) == [[204]]
    assert one(Both(down, up), [250]) == [[250]]


def test_shift_names_tell_their_strength():
    names = [shift.name for shift in ALL]
    assert names[:4] == ["clean", "noise 0.3", "blur 0.7", "contrast 0.4"]
    assert names[5:] == ["brightness +0.2", "rotation 20", "noise 0.2 + rotation -10"]
