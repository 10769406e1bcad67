"""Images that claim more than there is: found by hand, kept as cases."""

import struct
import zlib

import pytest
from PIL import Image

from acclimate.data import own
from acclimate.data.pictures import MOST_PIXELS, open_image
from acclimate.data.readers.images import read_image
from acclimate.errors import MissingData


def claiming(path, width, height):
    """A PNG of a few bytes that says it is that large."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(10))) + chunk(b"IEND", b"")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + body)
    return path


@pytest.mark.parametrize("side", [8_000, 10_000, 20_000])  # more than is possible here; a warning of PIL's; an error
def test_image_that_claims_too_many_pixels_is_refused_by_its_header(tmp_path, side):
    file = claiming(tmp_path / "own" / "a" / "x" / "large.png", side, side)
    with pytest.raises(ValueError, match=r"50,000,000"):
        open_image(file)
    with pytest.raises(MissingData, match=r"large\.png: expected an image, found: .*50,000,000"):
        read_image(file, (8, 8), 3)
    with pytest.raises(MissingData, match=r"large\.png: expected an image, found: .*50,000,000"):
        own.folder_per_client(tmp_path / "own", None)


def test_image_of_many_pixels_is_opened(tmp_path):
    side = int(MOST_PIXELS**0.5)
    with open_image(claiming(tmp_path / "large.png", side, side)) as image:
        assert image.size == (side, side)
    Image.new("L", (3, 2)).save(tmp_path / "small.png")
    assert read_image(tmp_path / "small.png", (2, 3), 1).shape == (2, 3, 1)
