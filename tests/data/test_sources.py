import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import sklearn
import torch
from sklearn.datasets import load_digits

from acclimate.data import sources
from acclimate.data.dataset import Dataset
from acclimate.data.packs import write_pack
from acclimate.data.sources import SOURCES, combine, load, status
from acclimate.data.variants import variant
from acclimate.errors import ConfigError, MissingData
from acclimate.examples import Images

HERE = Path(__file__).resolve()
SHARED = HERE.parents[3] / "shared" / "data"
DOCS = HERE.parents[2] / "docs" / "data.md"
FAST = ["mnist", "mnist-writers", "fashion-mnist", "usps", "font-digits", "semeion", "office-caltech10"]
SLOW = ["cifar10", "svhn", "mnist-m", "pacs", "tiny-imagenet"]
COUNTS = {  # of shared/data/README.md
    "mnist": [6903, 7877, 6990, 7141, 6824, 6313, 6876, 7293, 6825, 6958],
    "usps": [1553, 1269, 929, 824, 852, 716, 834, 792, 708, 821],
    "semeion": [161, 162, 159, 159, 161, 159, 161, 158, 155, 158],
    "font-digits": [1016] * 10,
    "cifar10": [6000] * 10,
    "svhn": [6692, 18960, 14734, 11379, 9981, 9266, 7704, 7614, 6705, 6254],
    "tiny-imagenet": [300] * 100,
}


@pytest.fixture
def shared(monkeypatch):
    monkeypatch.setenv("ACCLIMATE_DATA", str(SHARED))


@pytest.fixture
def packs(tmp_path, monkeypatch):
    """An empty data folder with a cache of its own."""
    monkeypatch.setenv("ACCLIMATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ACCLIMATE_DATA", str(tmp_path / "packs"))
    return tmp_path / "packs"


def need(name):
    if sources.pack_of(name) is None:
        pytest.skip(f"{' or '.join(SOURCES[name].files)} is not in shared/data")


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def check_pack(name):
    need(name)
    source, found = SOURCES[name], load(name)
    assert len(found.labels) == len(found.images) == source.images
    assert found.images.shape == source.shape and found.classes == source.classes
    assert set(np.unique(found.labels)) == set(range(source.classes))
    assert len(found.names["label"]) == source.classes
    assert all(len(column) == source.images for column in found.columns.values())
    assert len(found.mean) == len(found.std) == source.shape[0]
    if name in COUNTS:
        assert np.bincount(found.labels).tolist() == COUNTS[name]
    written = found.images.path.stat().st_mtime_ns
    again = load(name)
    assert again.images.path.stat().st_mtime_ns == written  # found, not decoded again
    assert again.digest == found.digest and again.images.path == found.images.path
    return found


@pytest.mark.parametrize("name", FAST)
def test_pack_at_hand_is_what_its_row_says(shared, name):
    check_pack(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_large_pack_at_hand_is_what_its_row_says(shared, name):
    check_pack(name)


@pytest.mark.parametrize("name", ["usps", "semeion", "font-digits", "office-caltech10"])
def test_mean_and_std_of_a_row_are_those_of_its_pack(shared, name):
    need(name)
    found = load(name)
    rows = found.where("split", 0) if "split" in found.columns else np.arange(len(found.labels))
    x = found.images.pixels[torch.from_numpy(rows)].double() / 255
    assert x.mean((0, 1, 2)).tolist() == pytest.approx(found.mean, abs=1e-4)
    assert x.std((0, 1, 2)).tolist() == pytest.approx(found.std, abs=1e-4)


def test_mnist_writers_know_who_wrote(shared):
    need("mnist-writers")
    found = load("mnist-writers")
    train, test = (set(found.columns["writer"][found.where("split", part)].tolist()) for part in (0, 1))
    assert (len(train), len(test), train & test) == (539, 297, set())
    assert np.bincount(found.columns["hsf"][found.where("split", 0)]).tolist() == [30950, 0, 0, 0, 29050]
    assert found.images.path == load("mnist").images.path  # decoded once for both
    assert found.digest != load("mnist").digest


def test_domains_have_names(shared):
    need("office-caltech10")
    found = load("office-caltech10")
    sizes = {domain: len(found.where("domain", domain)) for domain in found.names["domain"]}
    assert sizes == {"amazon": 958, "caltech10": 1123, "dslr": 157, "webcam": 295}


def test_font_digits_are_bright_on_dark(shared):
    need("font-digits")
    assert load("font-digits").images.pixels[:, 0, 0].float().mean() < 30


@pytest.mark.slow
def test_svhn_photos_stay_recognisable(shared):
    need("svhn")
    found = load("svhn")
    assert "image_index" not in found.columns
    assert len(np.unique(found.columns["photo"][found.where("split", 0)])) == 33402


def test_digits_are_as_ever():
    """The quickstart's numbers rest on these pixels: bilinear, rounded, of the images over 16."""
    small = torch.from_numpy(load_digits().images.astype(np.float32)).unsqueeze(1) / 16
    large = torch.nn.functional.interpolate(small, (32, 32), mode="bilinear", align_corners=False)
    found = load("digits", 32)
    assert torch.equal(found.images.pixels[..., 0], (large * 255).round().to(torch.uint8)[:, 0])
    assert np.array_equal(found.labels, load_digits().target) and found.columns == {}
    assert load("digits").digest == found.digest == f"digits-32-sklearn-{sklearn.__version__}"
    assert load("digits", 16, 3).images.shape == (3, 16, 16)


def test_size_and_channels_are_those_asked_for(shared):
    need("usps")
    found, grey = load("usps", 32, 3), load("usps")
    assert found.images.shape == (3, 32, 32) and found.mean == grey.mean * 3 and found.std == grey.std * 3
    assert torch.equal(found.images.pixels[..., 0], found.images.pixels[..., 2])
    assert np.array_equal(found.labels, grey.labels) and found.columns.keys() == grey.columns.keys()
    assert load("usps", 16, 1).digest == grey.digest != found.digest
    written = found.images.path.stat().st_mtime_ns
    assert load("usps", 32, 3).images.path.stat().st_mtime_ns == written  # found, not computed again


def toy(images, name="toy", **more):
    channels = images.shape[3]
    labels = np.arange(len(images)) % 2
    return Dataset(name, Images(images), labels, 2, (0.2,) * channels, (0.1,) * channels, f"{name}-1", **more)


def test_colour_becomes_grey_by_luma(packs):
    """0.299 · 100 + 0.587 · 200 + 0.114 · 50 = 153."""
    found = variant(toy(np.full((2, 4, 4, 3), (100, 200, 50), np.uint8)), channels=1)
    assert (found.images.pixels == 153).all() and found.images.shape == (1, 4, 4)
    assert found.mean == (0.2,) and found.std == (0.1,)


def test_smaller_images_are_averages(packs):
    """Bilinear with antialiasing halves a picture with weights ⅛, ⅜, ⅜, ⅛ (less outside), not by dropping pixels."""
    stripes = np.zeros((1, 8, 8, 1), np.uint8)
    stripes[:, :, ::2] = 200
    found = variant(toy(stripes), 4).images.pixels[0, :, :, 0]
    assert found[:, 1:-1].unique().tolist() == [100]
    flat = variant(toy(np.full((1, 8, 8, 1), 77, np.uint8), "flat"), 4).images.pixels
    assert (flat == 77).all()


def test_variant_of_itself_is_itself(packs):
    one = toy(pixels(2, 4, 4, 1))
    assert variant(one, 4, 1) is one and variant(one) is one
    with pytest.raises(ConfigError, match="1 or 3 channels are possible; found 1, asked for 2"):
        variant(one, 4, 2)


def test_where_finds_rows_by_number_or_name():
    one = toy(pixels(4, 2, 2, 1), columns={"domain": np.array([0, 1, 0, 1])}, names={"domain": ("a", "b")})
    assert one.where("domain", "b").tolist() == one.where("domain", 1).tolist() == [1, 3]
    assert one.where("label", 0).tolist() == [0, 2]
    with pytest.raises(MissingData, match="data set 'toy' has no column 'domian'; did you mean 'domain'"):
        one.where("domian", 0)
    with pytest.raises(MissingData, match="column 'domain' of 'toy' has no 'c'"):
        one.where("domain", "c")


def test_digits_of_several_sources_combine(shared):
    for name in ("usps", "semeion"):
        need(name)
    found = combine(["usps", "semeion", "digits"], 16, 1)
    sizes = [9298, 1593, 1797]
    assert [len(found.where("domain", name)) for name in ("usps", "semeion", "digits")] == sizes
    assert len(found.images) == sum(sizes) and found.images.shape == (1, 16, 16)
    assert np.bincount(found.columns["split"] + 1).tolist() == [1593 + 1797, 7291, 2007]  # -1: has no split
    second = load("semeion", 16, 1)
    rows = torch.from_numpy(found.where("domain", "semeion"))
    assert torch.equal(found.images.pixels[rows], second.images.pixels)
    assert np.array_equal(found.labels[rows.numpy()], second.labels)
    assert combine(["usps", "semeion", "digits"], 16, 1).images.path == found.images.path


def test_combined_mean_and_deviation_are_pooled(packs):
    """Two sets of equal size, means 0.2 and 0.6, deviations 0: together mean 0.4, deviation 0.2."""
    found = sources._pooled(
        [toy(pixels(2, 2, 2, 1)), toy(pixels(2, 2, 2, 1)).__class__(
            "b", Images(pixels(2, 2, 2, 1)), np.zeros(2, np.int64), 2, (0.6,), (0.1,), "b")],
        [2, 2],
    )  # fmt: skip
    assert found[0] == (0.4,) and found[1][0] == pytest.approx((0.2**2 + 0.1**2) ** 0.5, abs=1e-4)


def test_other_classes_do_not_combine(shared):
    need("office-caltech10")
    with pytest.raises(ConfigError, match="only if their classes are the same; found digits: 0, 1"):
        combine(["digits", "office-caltech10"], 16, 3)


def test_missing_set_says_what_and_where(packs):
    with pytest.raises(
        MissingData, match=r"'cifar10' is not here: expected cifar10\.npz or cifar10_jpeg\.npz in .*packs"
    ):
        load("cifar10")
    with pytest.raises(MissingData, match=r"mnist\.npz with mnist_writers\.npz"):
        load("mnist-writers")
    with pytest.raises(MissingData, match="unknown data set 'cifra10'; did you mean 'cifar10'"):
        load("cifra10")


def test_published_files_in_the_data_folder_are_convertible(packs):
    packs.mkdir()
    (packs / "semeion.data").write_text("")
    assert status("semeion")["state"] == "convertible"
    with pytest.raises(MissingData, match=r"convert them with: acclimate data convert semeion"):
        load("semeion")


def test_better_pack_is_preferred(packs):
    images, labels = pixels(2, 32, 32, 3), np.array([0, 9])
    write_pack(packs / "cifar10_jpeg.npz", images, labels)
    assert load("cifar10").digest.startswith("cifar10_jpeg-")
    write_pack(packs / "cifar10.npz", images, labels)
    assert load("cifar10").digest.startswith("cifar10-")


def test_classes_of_a_pack_must_be_those_of_its_row(packs):
    names = [f"class {k}" for k in range(10)]
    write_pack(packs / "cifar10.npz", pixels(2, 32, 32, 3), np.array([0, 9]), classes=names)
    with pytest.raises(MissingData, match=r"cifar10\.npz: expected the classes airplane, .*; found class 0"):
        load("cifar10")


def test_status_tells_the_checksum(packs):
    assert status("semeion")["state"] == "missing" and status("digits")["state"] == "here"
    need_file = SHARED / "semeion.npz"
    if not need_file.exists():
        pytest.skip("semeion.npz is not in shared/data")
    packs.mkdir()
    shutil.copyfile(need_file, packs / "semeion.npz")
    assert status("semeion")["checksum"] == "unchecked"
    assert status("semeion", checksums=True)["checksum"] == "ok"
    assert status("semeion")["checksum"] == "ok"  # remembered
    write_pack(packs / "semeion.npz", pixels(2, 16, 16), np.array([0, 9]))
    assert status("semeion")["checksum"] == "unchecked"
    assert status("semeion", checksums=True)["checksum"] == "differs"
    write_pack(packs / "cifar100.npz", pixels(2, 32, 32, 3), np.array([0, 9]))
    assert status("cifar100", checksums=True)["checksum"] == "unknown" and status("cifar100")["tried"] == "no"


def run(packs, *words):
    return subprocess.run(
        [sys.executable, "-m", "acclimate", "data", *words],
        capture_output=True, text=True, timeout=60, cwd=packs.parent, env={**os.environ},
    )  # fmt: skip


def test_command_line_checks_and_converts(packs):
    folder = packs.parent / "raw"
    folder.mkdir()
    line = " ".join(["1"] * 256 + ["1"] + ["0"] * 9)
    (folder / "semeion.data").write_text(f"{line}\n")
    assert {row["name"]: row["state"] for row in json.loads(run(packs, "check", "--json").stdout)}[
        "semeion"
    ] == "missing"
    assert run(packs, "convert", "semeion", str(folder)).stdout.startswith("written: ")
    rows = {row["name"]: row for row in json.loads(run(packs, "check", "--json", "--checksums").stdout)}
    assert rows["semeion"]["state"] == "here" and rows["semeion"]["checksum"] == "differs"
    again = run(packs, "convert", "semeion", str(folder))
    assert again.returncode == 2 and "not overwritten" in again.stderr and "Traceback" not in again.stderr


def test_status_needs_no_torch():
    code = "import sys; from acclimate.data.sources import SOURCES, status; [status(n) for n in SOURCES]; " \
           "print([m for m in ('torch', 'scipy', 'sklearn', 'PIL') if m in sys.modules])"  # fmt: skip
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert found.stdout.strip() == "[]", found.stderr


@pytest.mark.parametrize("name", SOURCES)
def test_row_is_complete(name):
    source = SOURCES[name]
    assert len(source.mean) == len(source.std) == source.shape[0] in (1, 3)
    assert not source.labels or len(source.labels) == source.classes
    assert source.title and source.origin and source.terms and source.norm
    assert not source.sha256.keys() - {*source.files, *source.beside.values()}
    assert all(len(digest) == 64 for digest in source.sha256.values())
    assert source.tried == (bool(source.sha256) or not source.files)
    assert source.forms or source.hub or source.sha256 or not source.files  # there is a way to get it


def table_line(name):
    source = SOURCES[name]
    shape = "x".join(map(str, source.shape))
    files = ", ".join(f"`{file}`" for file in source.files) or "none"
    notes = (source.caveats[:1].upper() + source.caveats[1:] + ". " if source.caveats else "") + (
        "" if source.tried else "Not tried here."
    )
    return (
        f"| `{name}` | {source.title} | {source.images:,} of {shape}, {source.classes} classes | {files} | "
        f"{source.origin} | {source.terms} | {source.norm} | {notes.strip()} |"
    )


def test_docs_list_every_row():
    found = [line for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert found[: len(SOURCES)] == [table_line(name) for name in SOURCES]


def test_docs_list_every_form():
    text = DOCS.read_text(encoding="utf-8")
    for name, source in SOURCES.items():
        for form in source.forms:
            assert f"| `{name}` | {form.what} |" in text
