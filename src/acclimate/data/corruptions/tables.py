"""How strong: the published parameters of each corruption at severities 1 to 5, for images of side 32, 64 and 224.

The numbers are those of CIFAR-10-C (32), Tiny-ImageNet-C (64) and ImageNet-C (224) (Hendrycks & Dietterich, ICLR 2019).
"""

from __future__ import annotations

Parameters = tuple[float, ...]
Row = tuple[Parameters, Parameters, Parameters, Parameters, Parameters]

SIDES = (32, 64, 224)


def table_side(side: int) -> int:
    """The table for images of this side: 32 below 48 pixels, 64 below 144, else 224 (the nearest of the three).

    >>> [table_side(side) for side in (28, 47, 48, 143, 144, 300)]
    [32, 32, 64, 64, 224, 224]
    """
    return min(SIDES, key=lambda published: (abs(published - side), -published))


def _each(a: float, b: float, c: float, d: float, e: float) -> Row:
    return (a,), (b,), (c,), (d,), (e,)


_ZOOM_SMALL: Row = ((0.01, 7), (0.01, 12), (0.01, 16), (0.01, 21), (0.01, 26))

# kind: a row for each of SIDES
PARAMETERS: dict[str, tuple[Row, Row, Row]] = {
    # std
    "gaussian_noise": (
        _each(0.04, 0.06, 0.08, 0.09, 0.10),
        _each(0.04, 0.08, 0.12, 0.15, 0.18),
        _each(0.08, 0.12, 0.18, 0.26, 0.38),
    ),
    # photons per unit
    "shot_noise": (_each(500, 250, 100, 75, 50), _each(250, 100, 50, 30, 15), _each(60, 25, 12, 5, 3)),
    # share of elements
    "impulse_noise": (
        _each(0.01, 0.02, 0.03, 0.05, 0.07),
        _each(0.01, 0.02, 0.05, 0.08, 0.14),
        _each(0.03, 0.06, 0.09, 0.17, 0.27),
    ),
    # radius, alias sigma
    "defocus_blur": (
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        ((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
        ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    ),
    # sigma, delta, passes
    "glass_blur": (
        ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        ((0.1, 1, 1), (0.5, 1, 1), (0.6, 1, 2), (0.7, 2, 1), (0.9, 2, 2)),
        ((0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)),
    ),
    # radius, sigma
    "motion_blur": (
        ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        ((10, 1), (10, 1.5), (10, 2), (10, 2.5), (12, 3)),
        ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    ),
    # step, number of factors
    "zoom_blur": (_ZOOM_SMALL, _ZOOM_SMALL, ((0.01, 12), (0.01, 16), (0.02, 11), (0.02, 13), (0.03, 11))),
    # loc, scale, zoom, threshold, radius, sigma, keep
    "snow": (
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.8),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.8),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.7),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.65),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.6),
        ),
        (
            (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
            (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
            (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
            (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
            (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
        ),
    ),
    # weight of the image, of the texture
    "frost": (
        ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        ((1, 0.3), (0.9, 0.4), (0.8, 0.45), (0.75, 0.5), (0.7, 0.55)),
        ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    ),
    # strength, wibbledecay
    "fog": (
        ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        ((0.4, 3), (0.7, 3), (1, 2.5), (1.5, 2), (2, 1.75)),
        ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    ),
    # added to V
    "brightness": (
        _each(0.05, 0.1, 0.15, 0.2, 0.3),
        _each(0.1, 0.2, 0.3, 0.4, 0.5),
        _each(0.1, 0.2, 0.3, 0.4, 0.5),
    ),
    # factor
    "contrast": (
        _each(0.75, 0.5, 0.4, 0.3, 0.15),
        _each(0.4, 0.3, 0.2, 0.1, 0.05),
        _each(0.4, 0.3, 0.2, 0.1, 0.05),
    ),
    # alpha, sigma, affine shift
    "elastic_transform": (
        ((0, 0, 2.56), (1.6, 6.4, 2.24), (2.56, 1.92, 1.92), (3.2, 1.28, 1.6), (3.2, 0.96, 0.96)),
        ((0, 0, 5.12), (3.2, 19.2, 3.84), (6.4, 5.12, 3.84), (6.4, 1.92, 1.92), (10.24, 1.92, 1.28)),
        # multiples of 244, not 224: a slip of the publication, kept
        ((488, 170.8, 24.4), (488, 19.52, 48.8), (12.2, 2.44, 4.88), (17.08, 2.44, 4.88), (29.28, 2.44, 4.88)),
    ),
    # factor
    "pixelate": (
        _each(0.95, 0.9, 0.85, 0.75, 0.65),
        _each(0.9, 0.8, 0.7, 0.6, 0.5),
        _each(0.6, 0.5, 0.4, 0.3, 0.25),
    ),
    # quality
    "jpeg_compression": (_each(80, 65, 58, 50, 40), _each(65, 58, 50, 40, 25), _each(25, 18, 15, 10, 7)),
    # std
    "speckle_noise": (
        _each(0.06, 0.1, 0.12, 0.16, 0.2),
        _each(0.15, 0.2, 0.25, 0.3, 0.35),
        _each(0.15, 0.2, 0.35, 0.45, 0.6),
    ),
    # sigma
    "gaussian_blur": (_each(0.4, 0.6, 0.7, 0.8, 1), _each(0.5, 0.75, 1, 1.25, 1.5), _each(1, 2, 3, 4, 6)),
    # loc, scale, sigma, threshold, strength, mud
    "spatter": (
        (
            (0.62, 0.1, 0.7, 0.7, 0.5, 0),
            (0.65, 0.1, 0.8, 0.7, 0.5, 0),
            (0.65, 0.3, 1, 0.69, 0.5, 0),
            (0.65, 0.1, 0.7, 0.69, 0.6, 1),
            (0.65, 0.1, 0.5, 0.68, 0.6, 1),
        ),
        (
            (0.62, 0.1, 0.7, 0.7, 0.6, 0),
            (0.65, 0.1, 0.8, 0.7, 0.6, 0),
            (0.65, 0.3, 1, 0.69, 0.6, 0),
            (0.65, 0.1, 0.7, 0.68, 0.6, 1),
            (0.65, 0.1, 0.5, 0.67, 0.6, 1),
        ),
        (
            (0.65, 0.3, 4, 0.69, 0.6, 0),
            (0.65, 0.3, 3, 0.68, 0.6, 0),
            (0.65, 0.3, 2, 0.68, 0.5, 0),
            (0.65, 0.3, 1, 0.65, 1.5, 1),
            (0.67, 0.4, 1, 0.65, 1.5, 1),
        ),
    ),
    # factor, offset
    "saturate": (
        ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
        ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (30, 0.2)),
        ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    ),
}


def parameters(kind: str, severity: int, side: int) -> Parameters:
    """The parameters of a corruption for images of this side.

    >>> parameters("fog", 5, side=28)
    (1.5, 1.75)
    """
    return PARAMETERS[kind][SIDES.index(table_side(side))][severity - 1]
