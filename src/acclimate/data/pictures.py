"""Opening image files that may claim anything."""

from __future__ import annotations

import warnings
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

MOST_PIXELS = 50_000_000  # of one image
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # whatever a file is called; EPS would be a program
ORIENTATION = 0x0112  # where a camera notes how it was held: 1 upright, to 8


def open_image(source: Path | IO[bytes]) -> Image:
    """An image by its header: nothing is decoded yet. ValueError: it is none, or claims more pixels than are read."""
    from PIL import Image, UnidentifiedImageError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit here is lower
        try:
            image = Image.open(source, formats=FORMATS)
        except Image.DecompressionBombError as error:
            raise ValueError(f"more pixels than the {MOST_PIXELS:,} that are possible") from error
        except UnidentifiedImageError as error:
            raise ValueError(f"something that is none of {', '.join(FORMATS)}, or damaged") from error
        except OSError:
            raise
        except Exception as error:  # of a header that leads its reader astray
            raise ValueError(f"a damaged header ({type(error).__name__}: {error})") from error
    if image.width * image.height > MOST_PIXELS:
        image.close()
        raise ValueError(f"{image.width}x{image.height} pixels, at most {MOST_PIXELS:,} possible")
    if "exif" in image.info and isinstance(source, Path):  # images inside a pack are never turned
        _keep_only_orientation(image)
    return image


def _keep_only_orientation(image: Image) -> None:
    """Forget what else a camera has noted: a photograph with damaged notes is as good as any, until they are read."""
    from PIL import Image

    kept = Image.Exif()
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        held = image.getexif().get(ORIENTATION)
        if held in range(1, 9):
            kept[ORIENTATION] = held
    image.info["exif"] = kept.tobytes()
    image.getexif().load(image.info["exif"])
