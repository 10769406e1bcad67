"""Random views of image batches: parts, mirror images, other colours.

Images are floats [B, C, H, W] in [0, 1], in colour or grey, and stay so; what is channels last in memory stays so too.
Whatever is random is drawn for each image by itself, from torch's default generator. A name that ends in an underscore
changes its images in place, and is fastest where they are contiguous: one channel after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate.data.variants import LUMA
from acclimate.options import Count, NonNegative, Positive, Share

TRIES = 10  # of a box that fits into the image
BRIGHTNESS, CONTRAST, SATURATION = 0, 1, 2
THIRDS = torch.tensor([0.0, 4 / 6, 2 / 6]).view(1, 3, 1, 1)  # of a turn: where red, green and blue read the hue


@dataclass(frozen=True)
class Views:
    """Makes one random view of every image of a batch: a part of it at full size, mirrored, recoloured, made grey.

    Two views of each are `views(torch.cat([x, x]))`. Digits want `flip: 0`: mirrored, they are others or none.
    """

    scale: tuple[Positive, Positive] = (0.5, 1.0)  # the part's area, as a share of the image's
    ratio: tuple[Positive, Positive] = (3 / 4, 4 / 3)  # its width : height
    flip: Share = 0.5
    jitter: Share = 0.8  # how likely an image is recoloured
    brightness: NonNegative = 0.4
    contrast: NonNegative = 0.4
    saturation: NonNegative = 0.4
    hue: NonNegative = 0.1  # in turns
    grey: Share = 0.0

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (a misspelt key in an experiment is an error)

    def __call__(self, x: Tensor) -> Tensor:
        """A view of each image, of the same shape."""
        view = flip_(_crop(x, self.scale, self.ratio), self.flip)
        jitter_(view, self.brightness, self.contrast, self.saturation, self.hue, self.jitter)
        return _like(x, grey_(view, self.grey))


@dataclass(frozen=True)
class Crops:
    """Shows every image of a batch moved by some pixels, black where it was not, and mirrored half of the time."""

    margin: Count = 4  # the most that it is moved by, in each direction
    flip: bool = True

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012  (a misspelt key in an experiment is an error)

    def __call__(self, x: Tensor) -> Tensor:
        """Another batch of the same shape."""
        return crops(F.pad(x, [self.margin] * 4), x.shape[-2:], self.flip)


def crops(padded: Tensor, size: Sequence[int], flip: bool) -> Tensor:
    """A random part of each padded image, of this height and width, mirrored with probability one half."""
    height, width = size
    free = padded.shape[-1] - width + 1
    top, left = torch.randint(free, (2, len(padded), 1))
    mirrors = torch.rand(len(padded), 1) < 0.5
    rows, columns = top + torch.arange(height), left + torch.arange(width)
    if flip:
        columns = torch.where(mirrors, columns.flip(1), columns)
    each = torch.arange(len(padded)).view(-1, 1, 1)
    return padded.permute(0, 2, 3, 1)[each, rows.unsqueeze(2), columns.unsqueeze(1)].permute(0, 3, 1, 2)


def mirrored(images: Tensor, margin: int) -> Tensor:
    """Images with a margin that repeats them backwards, pixels at the edge included.

    >>> mirrored(torch.tensor([[1, 2, 3]]), 2)[0]
    tensor([2, 1, 1, 2, 3, 3, 2])
    """
    rows, columns = (_there_and_back(side, margin) for side in images.shape[-2:])
    return images[..., rows, :][..., columns]


def _there_and_back(side: int, margin: int) -> Tensor:
    """Which pixel of a row stands where in the padded row, with period 2 · side."""
    place = torch.arange(-margin, side + margin) % (2 * side)
    return torch.minimum(place, 2 * side - 1 - place)


def resized_crop(
    x: Tensor,
    scale: tuple[float, float] = (0.5, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    size: tuple[int, int] | None = None,
) -> Tensor:
    """A random part of each image, brought to `size` (by default the image's own) by bilinear interpolation.

    The part is a box of whole pixels: its area is uniform in `scale`, the logarithm of its width : height uniform in
    `ratio`, its place uniform. Where ten draws do not fit into the image, it is the largest box in the middle.
    """
    return _like(x, _crop(x, scale, ratio, size))


def _crop(
    x: Tensor, scale: tuple[float, float], ratio: tuple[float, float], size: tuple[int, int] | None = None
) -> Tensor:
    """As `resized_crop`, but always contiguous."""
    height, width = x.shape[2:]
    area = torch.empty(TRIES, len(x)).uniform_(*scale).mul_(height * width)
    shape = torch.empty(TRIES, len(x)).uniform_(*map(math.log, ratio)).exp_()
    place = torch.rand(2, len(x))
    wide, high = (area * shape).sqrt_().round_(), (area / shape).sqrt_().round_()
    fits = (wide.clamp(1, width) == wide) & (high.clamp(1, height) == high)
    fit, first = fits.max(0, keepdim=True)  # whether any does, and the first that does
    none = ~fit.squeeze(0)
    widest = min(max(width / height, ratio[0]), ratio[1])  # width : height of the largest box
    wide = wide.gather(0, first).squeeze(0).masked_fill_(none, min(width, round(height * widest)))
    high = high.gather(0, first).squeeze(0).masked_fill_(none, min(height, round(width / widest)))
    place.masked_fill_(none, 0.5)
    top, left = (place[0] * (height - high + 1)).floor_(), (place[1] * (width - wide + 1)).floor_()
    rows, columns = size or (height, width)
    across, down = _places(left, wide, width, columns), _places(top, high, height, rows)
    nought = torch.zeros(())  # a pair (across, down) as one complex number: written in one pass
    grid = torch.complex(across, nought).unsqueeze(1) + torch.complex(nought, down).unsqueeze(2)
    return F.grid_sample(x, torch.view_as_real(grid), align_corners=False)


def _places(start: Tensor, length: Tensor, pixels: int, size: int) -> Tensor:
    """Where [B, size] evenly spread places of a box lie along an axis that goes from -1 to 1; none is outside it."""
    inside = (torch.arange(size) + 0.5) * (length / size).unsqueeze(1)
    inside = inside.clamp_(min=0.5).minimum((length - 0.5).unsqueeze(1))
    return (start.unsqueeze(1) + inside).mul_(2 / pixels).sub_(1)


def flip(x: Tensor, p: float = 0.5) -> Tensor:
    """Each image mirrored left to right, with probability `p`."""
    return flip_(x.clone(), p)


def flip_(x: Tensor, p: float) -> Tensor:
    """As `flip`, in place."""
    chosen = _chosen(torch.rand(len(x)) < p)
    return x.index_copy_(0, chosen, x.index_select(0, chosen).flip(3))


def jitter(
    x: Tensor,
    brightness: float = 0.4,
    contrast: float = 0.4,
    saturation: float = 0.4,
    hue: float = 0.1,
    p: float = 0.8,
) -> Tensor:
    """Each image recoloured with probability `p`: brightness, contrast, saturation and hue, in an order of its own.

    Factors are uniform in [1 − amount, 1 + amount] and never negative, the hue's turn in [−hue, hue]. Grey images have
    neither saturation nor hue.
    """
    result = x.clone(memory_format=torch.contiguous_format)
    return _like(x, jitter_(result, brightness, contrast, saturation, hue, p))


def jitter_(x: Tensor, brightness: float, contrast: float, saturation: float, hue: float, p: float) -> Tensor:
    """As `jitter`, in place."""
    colours = x.shape[1] == 3
    amounts = torch.tensor([brightness, contrast, saturation] if colours else [brightness, contrast])
    factors = torch.rand(len(x), len(amounts)).mul_(2).sub_(1).mul_(amounts).add_(1).clamp_(min=0)
    order = torch.rand(len(x), len(amounts)).argsort(1)
    turns, when = torch.empty(len(x)).uniform_(-hue, hue), torch.randint(4, (len(x),))  # the hue's place among them
    spared = torch.rand(len(x)) >= p
    factors.masked_fill_(spared.unsqueeze(1), 1.0)
    when.masked_fill_(spared, -1)
    for step in range(len(amounts) + 1):
        if colours and hue > 0:
            rows = _chosen(when == step)
            x.index_copy_(0, rows, turn_hue(x.index_select(0, rows), turns[rows]))
        if step < len(amounts):
            kinds = order[:, step]
            recolour_(x, kinds, factors.gather(1, kinds.unsqueeze(1)))
    return x


def recolour_(x: Tensor, kinds: Tensor, factors: Tensor) -> Tensor:
    """Mix each image, in place, with black (brightness), its mean grey (contrast) or itself in grey (saturation).

    Factor 1 is the image, 0 what it is mixed with; above 1 it is brighter, harder or more colourful.
    """
    kinds, factors, own = _each(kinds), _each(factors), luma(x)
    mean = own.mean((1, 2, 3), keepdim=True)
    rest = 1 - factors
    other = (own * (rest * (kinds == SATURATION))).add_(mean * (rest * (kinds == CONTRAST)))
    return x.mul_(factors).add_(other).clamp_(0, 1)


def turn_hue(x: Tensor, turns: Tensor) -> Tensor:
    """Each image's colours turned about the circle of HSV, where half a turn makes red cyan; saturation, value stay.

    With low = min(r, g, b), chroma = max(r, g, b) − low and the hue h in sixths of a turn, red is
    low + chroma · clamp(|h − 3| − 1, 0, 1); green and blue are the same of h − 2 and h − 4, modulo 6. Solved for h:
    |h − 3| = 2 + (r − g − b + low) / chroma, and h < 3 where g > b. No case has to be told from another.
    """
    red, green, blue = x.unbind(1)
    low = x.amin(1)
    chroma = x.amax(1).sub_(low)
    distance = (red - green).sub_(blue).add_(low).div_(chroma.clamp(min=1e-12)).add_(2)  # |h − 3|
    hue = torch.copysign(distance, green - blue).div_(-6).add_(0.5).add_((turns % 1).view(-1, 1, 1))  # in turns
    hues = (hue.unsqueeze(1) + THIRDS).frac_()
    shares = hues.mul_(6).sub_(3).abs_().sub_(1).clamp_(0, 1)
    return shares.mul_(chroma.unsqueeze(1)).add_(low.unsqueeze(1))


def grey(x: Tensor, p: float) -> Tensor:
    """Each image without its colours, with probability `p`."""
    return grey_(x.clone(), p)


def grey_(x: Tensor, p: float) -> Tensor:
    """As `grey`, in place."""
    chosen = _chosen(torch.rand(len(x)) < p)
    if len(chosen) == 0:
        return x
    return x.index_copy_(0, chosen, luma(x.index_select(0, chosen)).expand(-1, x.shape[1], -1, -1))


def luma(x: Tensor) -> Tensor:
    """The grey of every pixel, [B, 1, H, W], by the ITU-R 601 weights."""
    if x.shape[1] == 1:
        return x
    red, green, blue = x.unbind(1)
    return (red * LUMA[0]).add_(green, alpha=LUMA[1]).add_(blue, alpha=LUMA[2]).unsqueeze(1)


def _chosen(mask: Tensor) -> Tensor:
    return mask.nonzero().squeeze(1)


def _each(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)


def _like(x: Tensor, changed: Tensor) -> Tensor:
    """In the memory order of `x`."""
    last = x.is_contiguous(memory_format=torch.channels_last)
    return changed.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
