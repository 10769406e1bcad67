"""Images that claim more than there is, or are none: found by hand or by chance, kept as cases."""

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

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


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "MPO", "BMP", "GIF", "WEBP", "TIFF", "PPM"])
def test_usual_kinds_of_images_are_read_whatever_they_are_called(tmp_path, kind):
    Image.new("RGB", (4, 4), (250, 0, 0)).save(tmp_path / "x.png", kind)
    np.testing.assert_allclose(read_image(tmp_path / "x.png", (4, 4), 3), np.full((4, 4, 3), [250, 0, 0]), atol=5)


def test_program_that_is_called_an_image_is_not_run(tmp_path, monkeypatch):
    """Pillow hands EPS, which is a program, to Ghostscript."""
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch {tmp_path / 'was-run'}\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # what was found before is remembered
    Image.new("RGB", (4, 4)).save(tmp_path / "x.png", "EPS")
    with pytest.raises(MissingData, match=r"x\.png: expected an image, found: something that is none of PNG, JPEG"):
        read_image(tmp_path / "x.png", (4, 4), 3)
    assert not (tmp_path / "was-run").exists()


def test_header_that_leads_its_reader_astray_is_named(tmp_path, monkeypatch):
    def astray(*args, **options):
        raise RuntimeError("lost")

    monkeypatch.setattr(Image, "open", astray)
    with pytest.raises(MissingData, match=r"x\.png: expected an image, found: a damaged header \(RuntimeError: lost\)"):
        read_image(tmp_path / "x.png", (4, 4), 3)


NOTES = {  # a camera's, each with what cannot be read or written again: tag, type, count, value
    "a width in letters": (0x0100, 2, 4, b"abc\0"),
    "a maker in numbers": (0x010F, 11, 1, bytes(4)),
    "a date in fractions": (0x0132, 5, 1, b"\0\0\0\2"),
}


@pytest.mark.parametrize("how", NOTES)
def test_photograph_with_damaged_notes_is_read_and_turned(tmp_path, how):
    held = (0x0112, 3, 1, b"\0\x06\0\0")  # on its side
    entries = b"".join(struct.pack(">HHI4s", *entry) for entry in sorted([held, NOTES[how]]))
    notes = b"Exif\0\0MM\0*" + struct.pack(">IH", 8, 2) + entries + bytes(4)
    picture = np.zeros((4, 8, 3), np.uint8)
    picture[:, :4] = 200
    Image.fromarray(picture).save(tmp_path / "x.jpg", exif=notes, quality=95)
    turned = read_image(tmp_path / "x.jpg", (8, 4), 3, upright=True)
    np.testing.assert_allclose(turned, np.rot90(picture, -1), atol=5)
    np.testing.assert_allclose(read_image(tmp_path / "x.jpg", (4, 8), 3), picture, atol=5)


def test_photograph_in_memory_is_decoded_as_ever_whatever_its_camera_noted():
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    notes = Image.Exif()
    notes[0x010F] = "a camera"
    with io.BytesIO() as file:
        Image.fromarray(pixels).save(file, "JPEG", exif=notes)
        assert np.array_equal(open_image(file).convert("RGB"), Image.open(file).convert("RGB"))
