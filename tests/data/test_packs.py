import io
import os
import time
import warnings

import numpy as np
import pytest
from PIL import Image

from acclimate.data import identity, packs
from acclimate.data.folders import cache_folder, data_folder
from acclimate.data.packs import open_columns, open_pack, write_pack
from acclimate.data.sealed import write_images
from acclimate.errors import Damage, MissingData

SHAPE = (1, 4, 4)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCLIMATE_CACHE", str(tmp_path / "cache"))


def pixels(count, *shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (count, *shape), dtype=np.uint8)


def jpegs(images):
    """Encoded images one after another, and where each begins."""
    parts = []
    for image in images:
        file = io.BytesIO()
        Image.fromarray(image).save(file, "PNG")  # lossless, so that pixels can be compared
        parts.append(file.getvalue())
    return np.frombuffer(b"".join(parts), np.uint8), np.cumsum([0, *map(len, parts)])


def buf_pack(path, count=5, **changes):
    images = pixels(count, 4, 4, 3)
    buf, offsets = jpegs(images)
    arrays = {
        "buf": buf,
        "offsets": offsets,
        "y": np.arange(count, dtype=np.uint8) % 2,
        "split": np.zeros(count, np.uint8),
        "domain": np.arange(count, dtype=np.uint8) % 2,
        "classes": np.array(["cat", "dog"]),
        "domains": np.array(["photo", "sketch"]),
        "paths": np.array([f"{k}.png" for k in range(count)]),
    }
    np.savez(path, **{key: value for key, value in (arrays | changes).items() if value is not None})
    return images


def test_pack_in_two_parts_is_train_then_test_with_a_split(tmp_path):
    train, test = pixels(3, 4, 4), pixels(2, 4, 4, seed=1)
    np.savez(
        tmp_path / "a.npz",
        train_x=train, train_y=np.array([0, 1, 1], np.uint8), train_writer=np.array([7, 7, 8], np.int16),
        test_x=test, test_y=np.array([0, 1], np.uint8), test_writer=np.array([9, 9], np.int16),
    )  # fmt: skip
    pack = open_pack(tmp_path / "a.npz", 2, SHAPE)
    assert np.array_equal(np.load(pack.images)[..., 0], np.concatenate([train, test]))
    assert pack.labels.tolist() == [0, 1, 1, 0, 1] and pack.labels.dtype == np.int64
    assert pack.columns["split"].tolist() == [0, 0, 0, 1, 1]
    assert pack.columns["writer"].tolist() == [7, 7, 8, 9, 9]


def test_pack_of_encoded_images_is_decoded(tmp_path):
    images = buf_pack(tmp_path / "b.npz")
    pack = open_pack(tmp_path / "b.npz", 2, (3, 4, 4))
    assert np.array_equal(np.load(pack.images), images)
    assert pack.columns["domain"].tolist() == [0, 1, 0, 1, 0] and pack.columns["paths"][3] == "3.png"
    assert pack.names == {"label": ("cat", "dog"), "domain": ("photo", "sketch")}


def test_inverted_pack_is_kept_apart(tmp_path):
    np.savez(tmp_path / "c.npz", x=pixels(3, 4, 4), y=np.zeros(3, np.uint8))
    plain, inverted = (open_pack(tmp_path / "c.npz", 1, SHAPE, invert=invert) for invert in (False, True))
    assert np.array_equal(np.load(plain.images), 255 - np.load(inverted.images))
    assert plain.digest != inverted.digest


def test_written_pack_reads_back(tmp_path):
    images = pixels(5, 4, 4, 3)
    write_pack(
        tmp_path / "w.npz",
        (part for part in (images[:2], images[2:])),
        np.array([0, 1, 1, 0, 1]),
        {"split": np.array([0, 0, 0, 1, 1]), "superclass": np.array([0, 1, 1, 0, 1]), "paths": np.array(list("abcde"))},
        {"superclass": ("animal", "vehicle"), "domain": ("a",)},
        ["cat", "car"],
    )
    pack = open_pack(tmp_path / "w.npz", 2, (3, 4, 4))
    assert np.array_equal(np.load(pack.images), images)
    assert pack.labels.tolist() == [0, 1, 1, 0, 1] and pack.columns["paths"].tolist() == list("abcde")
    assert pack.names == {"label": ("cat", "car"), "superclass": ("animal", "vehicle"), "domain": ("a",)}


def test_pack_is_written_whole_or_not_at_all(tmp_path):
    with pytest.raises(MissingData, match=r"as many images as labels: 3; found 2"):
        write_pack(tmp_path / "w.npz", pixels(2, 4, 4), np.zeros(3, int))
    with pytest.raises(MissingData, match="expected images to write, found none"):
        write_pack(tmp_path / "w.npz", [], np.zeros(3, int))
    with pytest.raises(MissingData, match="numbers or strings"):
        write_pack(tmp_path / "w.npz", pixels(1, 4, 4), np.zeros(1, int), {"o": np.array([None])})
    assert list(tmp_path.glob("*npz*")) == list(tmp_path.glob(".*")) == []


def test_pack_in_parts_is_the_same_at_every_chunk(tmp_path, monkeypatch):
    np.savez(tmp_path / "a.npz", x=pixels(7, 4, 4), y=np.zeros(7, np.uint8))
    buf_pack(tmp_path / "b.npz", 7)
    found = []
    for chunk in (2, 1000):
        monkeypatch.setattr(packs, "CHUNK", chunk)
        monkeypatch.setenv("ACCLIMATE_CACHE", str(tmp_path / f"cache-{chunk}"))
        opened = (open_pack(tmp_path / "a.npz", 1, SHAPE), open_pack(tmp_path / "b.npz", 2, (3, 4, 4)))
        found.append([np.load(pack.images).tobytes() for pack in opened])
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": None}, "expected the arrays buf, offsets, y; found"),
        ({"y": np.zeros(4, np.uint8)}, "found 5"),
        ({"y": np.array([0, 1, 2, 0, 5], np.uint8)}, r"expected labels 0 to 1, found 2 in row 2 \(2 such\)"),
        ({"y": np.zeros(5)}, "labels as a list of integers, found float64"),
        ({"offsets": np.array([0, 90, 60, 150, 200, 250])}, "growing offsets, found 90 before 60 at row 1"),
        ({"offsets": np.array([0, 10, 20, 30, 40, 10**7])}, "expected offsets inside 0 to"),
        ({"offsets": np.zeros(0, int)}, "'offsets' as a list of integers"),
        ({"offsets": np.arange(6) * 10}, "expected an image in row 0, found"),
        ({"buf": np.zeros(1000, np.float32)}, "expected 'buf' as a list of uint8"),
        ({"split": np.array([0, 1, 2, 0, 0], np.uint8)}, r"expected 0 to 1 in 'split' \(train, test\)"),
        ({"domain": np.array([0, 1, 2, 0, 0], np.uint8)}, r"expected 0 to 1 in 'domain' \(photo, sketch\)"),
        ({"domain": np.zeros(3, np.uint8)}, "entries of 'domain'"),
        ({"classes": np.array(["cat"])}, "names of classes"),
        ({"extra": np.zeros((5, 2))}, "expected a list of numbers or strings in 'extra'"),
        ({"extra": np.array([None] * 5)}, "expected a readable .npz file, found: Object arrays cannot be loaded"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_wrong_pack_is_named_with_what_was_expected(tmp_path, changes, message):
    buf_pack(tmp_path / "wrong.npz", **changes)
    with pytest.raises(MissingData, match=rf"(?s)wrong\.npz: .*{message}"):
        open_pack(tmp_path / "wrong.npz", 2, (3, 4, 4))
    assert not list(cache_folder().glob("images/*"))  # nothing is half loaded


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"z": np.zeros(3)}, "expected the arrays buf, offsets, y; or train_x"),
        ({"train_x": np.zeros((2, 4, 4), np.uint8)}, "expected the arrays train_x, train_y, test_x, test_y"),
        ({"x": np.zeros((2, 4, 4)), "y": np.zeros(2, int)}, r"uint8 images \[N, 4, 4, 1\] in 'x', found float64"),
        ({"x": np.zeros((2, 4, 5), np.uint8), "y": np.zeros(2, int)}, r"found uint8 \(2, 4, 5\)"),
        ({"x": np.zeros((2, 4, 4, 3), np.uint8), "y": np.zeros(2, int)}, r"found uint8 \(2, 4, 4, 3\)"),
        ({"x": np.zeros((3, 4, 4), np.uint8), "y": np.zeros(2, int)}, "as many images as labels: 2; found 3"),
    ],
)
def test_wrong_array_pack_is_named(tmp_path, arrays, message):
    np.savez(tmp_path / "wrong.npz", **arrays)
    with pytest.raises(MissingData, match=message):
        open_pack(tmp_path / "wrong.npz", 2, SHAPE)


def test_images_of_another_size_are_named_by_row(tmp_path):
    buf, offsets = jpegs([*pixels(2, 4, 4, 3), *pixels(1, 5, 4, 3)])
    buf_pack(tmp_path / "p.npz", 3, buf=buf, offsets=offsets)
    with pytest.raises(MissingData, match=r"expected images of 4x4, found \(5, 4\) in row 2"):
        open_pack(tmp_path / "p.npz", 2, (3, 4, 4))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.99])
def test_truncated_pack_says_which_sum_was_expected(tmp_path, share):
    path = tmp_path / "cut.npz"
    np.savez_compressed(path, x=pixels(50, 4, 4), y=np.zeros(50, np.uint8))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(MissingData, match=r"cut\.npz: expected .*its sha256 is [0-9a-f]{64}, expected abc"):
        open_pack(path, 1, SHAPE, sha256="abc")


@pytest.mark.parametrize("at", range(40, 900, 60))
def test_damaged_pack_never_loads_half(tmp_path, at):
    """A byte changed anywhere is noticed, or it is one that nothing depends on."""
    path = tmp_path / "d.npz"
    write_pack(path, pixels(40, 4, 4), np.zeros(40, int))
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Damage)
            pack = open_pack(path, 1, SHAPE)
    except MissingData:
        assert not list(cache_folder().glob("images/*"))
    else:
        assert np.array_equal(np.load(pack.images)[..., 0], pixels(40, 4, 4))


def test_missing_pack_is_named(tmp_path):
    with pytest.raises(MissingData, match=r"gone\.npz: expected a pack \(\.npz\) here, found nothing"):
        open_pack(tmp_path / "gone.npz", 1, SHAPE)


def test_second_opening_decodes_nothing(tmp_path, monkeypatch):
    buf_pack(tmp_path / "b.npz")
    first = open_pack(tmp_path / "b.npz", 2, (3, 4, 4))
    monkeypatch.setattr(packs, "_encoded", None)
    monkeypatch.setattr(identity.hashlib, "file_digest", None)
    again = open_pack(tmp_path / "b.npz", 2, (3, 4, 4))
    assert again.images == first.images and again.digest == first.digest and again.names == first.names
    assert all(np.array_equal(again.columns[key], first.columns[key]) for key in first.columns)


def test_changed_pack_is_noticed(tmp_path):
    path = tmp_path / "b.npz"
    np.savez(path, x=pixels(3, 4, 4), y=np.zeros(3, np.uint8))
    first = open_pack(path, 1, SHAPE)
    np.savez(path, x=pixels(3, 4, 4, seed=1), y=np.zeros(3, np.uint8))
    os.utime(path, ns=(time.time_ns(), time.time_ns() + 1))
    second = open_pack(path, 1, SHAPE)
    assert first.digest != second.digest
    assert np.array_equal(np.load(second.images)[..., 0], pixels(3, 4, 4, seed=1))


def test_moved_pack_is_not_decoded_again(tmp_path, monkeypatch):
    buf_pack(tmp_path / "b.npz")
    first = open_pack(tmp_path / "b.npz", 2, (3, 4, 4))
    (tmp_path / "there").mkdir()
    (tmp_path / "b.npz").rename(tmp_path / "there" / "b.npz")
    monkeypatch.setattr(packs, "_encoded", None)
    assert open_pack(tmp_path / "there" / "b.npz", 2, (3, 4, 4)).digest == first.digest


def test_sum_is_recorded_until_the_file_changes(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"one")
    assert identity.recorded(path) is None
    found = identity.sha256_of(path)
    assert identity.recorded(path) == found == "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"
    path.write_bytes(b"three")
    assert identity.recorded(path) is None
    next(cache_folder().glob("packs/*.json")).write_text("{damaged")
    assert identity.recorded(path) is None and identity.sha256_of(path) != found


def test_columns_for_another_pack(tmp_path):
    np.savez(tmp_path / "more.npz", train_writer=np.array([3, 4], np.int16), test_writer=np.array([5], np.int16))
    columns, digest = open_columns(tmp_path / "more.npz", 3)
    assert columns["writer"].tolist() == [3, 4, 5] and digest.startswith("more-")
    with pytest.raises(MissingData, match=r"more\.npz: .*entries of 'writer' as images: 4; found 3"):
        open_columns(tmp_path / "more.npz", 4)
    np.savez(tmp_path / "half.npz", train_writer=np.array([3, 4]))
    with pytest.raises(MissingData, match="expected test_writer beside train_writer"):
        open_columns(tmp_path / "half.npz", 2)


def test_images_are_written_whole_or_not_at_all(tmp_path):
    write_images(tmp_path / "x.npy", (3, 4, 4, 1), [pixels(1, 4, 4, 1), pixels(2, 4, 4, 1)])
    assert np.load(tmp_path / "x.npy").shape == (3, 4, 4, 1)
    for parts in ([pixels(2, 4, 4, 1)], [pixels(3, 4, 5, 1)]):
        with pytest.raises(ValueError):
            write_images(tmp_path / "y.npy", (3, 4, 4, 1), parts)
    assert [path.name for path in tmp_path.glob("*.npy")] == ["x.npy"]


def test_data_folder_is_chosen_by_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("ACCLIMATE_DATA", str(tmp_path))
    assert data_folder() == tmp_path
    monkeypatch.delenv("ACCLIMATE_DATA")
    assert data_folder() == cache_folder() / "data"


def test_a_pack_that_was_converted_here_is_held_to_its_own_sum(tmp_path):
    path = write_pack(tmp_path / "d.npz", pixels(3, 4, 4), np.zeros(3, int))
    open_pack(path, 1, SHAPE, sha256="0" * 64)  # another copy than the one whose sum is known: no word
    path.with_name("d.npz.sha256").unlink()
    with pytest.warns(Damage, match="expected 0000"):
        open_pack(path, 1, SHAPE, sha256="0" * 64)
