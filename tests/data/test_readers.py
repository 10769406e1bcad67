"""Each reader reads tiny files that the test writes in the published format."""

import gzip
import json
import os
import pickle
import sys
import types
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from acclimate.data import convert as converting
from acclimate.data import sources
from acclimate.data.convert import convert, get
from acclimate.data.readers import arrays, cifar, folders, hub, idx, mat, tables
from acclimate.data.readers.images import read_image
from acclimate.errors import MissingData


@pytest.fixture(autouse=True)
def _own_folders(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCLIMATE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ACCLIMATE_DATA", str(tmp_path / "packs"))


@pytest.fixture
def raw(tmp_path):
    folder = tmp_path / "raw"
    folder.mkdir()
    return folder


def pixels(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def joined(raw):
    return np.concatenate(list(raw.images))


def write_idx(path, array, kind=0x08):
    header = bytes([0, 0, kind, array.ndim]) + b"".join(int(n).to_bytes(4, "big") for n in array.shape)
    data = header + array.astype({0x08: ">u1", 0x0C: ">i4"}[kind]).tobytes()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def write_mnist(folder, suffix="", size=28):
    train, test = pixels(4, size, size), pixels(3, size, size, seed=1)
    write_idx(folder / f"train-images-idx3-ubyte{suffix}", train)
    write_idx(folder / f"t10k-images-idx3-ubyte{suffix}", test)
    write_idx(folder / f"train-labels-idx1-ubyte{suffix}", np.array([5, 0, 4, 1]))
    write_idx(folder / f"t10k-labels-idx1-ubyte{suffix}", np.array([7, 2, 1]))
    return np.concatenate([train, test])


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_idx_files_convert_to_a_pack(raw, suffix):
    images = write_mnist(raw, suffix)
    convert("mnist", raw)
    found = sources.load("mnist")
    assert np.array_equal(found.images.pixels[..., 0].numpy(), images)
    assert found.labels.tolist() == [5, 0, 4, 1, 7, 2, 1] and found.where("split", 1).tolist() == [4, 5, 6]


def test_idx_with_writers(raw):
    """QMNIST's rows: class, series, writer, five more; its test part goes on after MNIST's."""
    write_mnist(raw)
    train = np.array([[5, 0, 11], [0, 0, 11], [4, 4, 12], [1, 4, 13]])
    test = np.array([[7, 4, 20], [2, 4, 20], [1, 0, 21], [9, 0, 22]])
    for name, table in (("train", train), ("test", test)):
        write_idx(raw / f"qmnist-{name}-labels-idx2-int", np.hstack([table, np.zeros((4, 5), int)]), 0x0C)
    convert("mnist-writers", raw)
    found = sources.load("mnist-writers")
    assert found.columns["writer"].tolist() == [11, 11, 12, 13, 20, 20, 21]
    assert found.columns["hsf"].tolist() == [0, 0, 4, 4, 4, 4, 0]
    write_idx(raw / "t10k-labels-idx1-ubyte", np.array([7, 2, 3]))
    with pytest.raises(MissingData, match="expected QMNIST's classes to be MNIST's"):
        idx.read_with_writers(raw)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "expected an idx file"),
        (b"PK\3\4....", "expected an idx file"),
        (b"\0\0\x08\x01\0\0\0\x05abc", r"expected 13 bytes for \(5,\), found 11"),
        (gzip.compress(b"\0\0\x08\x01\0\0\0\x03abc", mtime=0)[:-9], "expected a complete gzip file"),
    ],
)
def test_damaged_idx_is_named(raw, data, message):
    (raw / "broken").write_bytes(data)
    with pytest.raises(MissingData, match=f"broken: {message}"):
        idx.read_idx(raw / "broken")


class Python2(pickle._Pickler):
    """Writes byte strings as Python 2 wrote its strings, which is what CIFAR's files hold."""

    def save_bytes(self, text):
        self.write(pickle.BINSTRING + len(text).to_bytes(4, "little") + text)

    dispatch: ClassVar = {**pickle._Pickler.dispatch, bytes: save_bytes}


def write_batch(path, content):
    with path.open("wb") as file:
        Python2(file, protocol=2).dump(content)


def flat(images):
    """As CIFAR stores them: all red, all green, all blue."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2).reshape(len(images), -1))


def write_cifar100(folder):
    images = pixels(5, 32, 32, 3)
    fine, coarse = [3, 99, 0, 7, 8], [1, 19, 0, 2, 2]
    for name, part in (("train", slice(0, 3)), ("test", slice(3, 5))):
        write_batch(
            folder / name,
            {
                b"data": flat(images[part]),
                b"fine_labels": fine[part],
                b"coarse_labels": coarse[part],
                b"filenames": [b"f"],
            },
        )
    names = {
        b"fine_label_names": [f"class {k}".encode() for k in range(100)],
        b"coarse_label_names": [f"super {k}".encode() for k in range(20)],
    }
    write_batch(folder / "meta", names)
    return images


def test_cifar100_for_python_converts(raw):
    images = write_cifar100(raw)
    convert("cifar100", raw)
    found = sources.load("cifar100")
    assert np.array_equal(found.images.pixels.numpy(), images)
    assert found.labels.tolist() == [3, 99, 0, 7, 8] and found.columns["split"].tolist() == [0, 0, 0, 1, 1]
    assert found.columns["superclass"].tolist() == [1, 19, 0, 2, 2]
    assert found.names["label"][99] == "class 99"
    assert found.where("superclass", "super 2").tolist() == [3, 4]


def test_cifar10_for_python_converts_from_one_folder_below(raw):
    (raw / "cifar-10-batches-py").mkdir()
    images = pixels(6, 32, 32, 3)
    for k, name in enumerate([*cifar.TRAIN10, "test_batch"]):
        batch = {b"data": flat(images[k : k + 1]), b"labels": [k], b"batch_label": b"some"}
        write_batch(raw / "cifar-10-batches-py" / name, batch)
    names = [name.encode() for name in sources.SOURCES["cifar10"].labels]
    write_batch(raw / "cifar-10-batches-py" / "batches.meta", {b"label_names": names, b"num_vis": 3072})
    assert convert("cifar10", raw).name == "cifar10.npz"
    found = sources.load("cifar10")
    assert np.array_equal(found.images.pixels.numpy(), images) and found.labels.tolist() == list(range(6))


def test_cifar_binary_converts(raw):
    images = pixels(6, 32, 32, 3)
    for k, name in enumerate([*cifar.TRAIN10, "test_batch"]):
        (raw / f"{name}.bin").write_bytes(bytes([k]) + flat(images[k : k + 1]).tobytes())
    (raw / "batches.meta.txt").write_text("\n".join(sources.SOURCES["cifar10"].labels) + "\n\n")
    convert("cifar10", raw)
    found = sources.load("cifar10")
    assert np.array_equal(found.images.pixels.numpy(), images) and found.where("split", 1).tolist() == [5]


def test_cifar100_binary_reads_coarse_before_fine(raw):
    images = pixels(3, 32, 32, 3)
    record = [bytes([k, 10 + k]) + flat(images[k : k + 1]).tobytes() for k in range(3)]
    (raw / "train.bin").write_bytes(record[0] + record[1])
    (raw / "test.bin").write_bytes(record[2])
    (raw / "fine_label_names.txt").write_text("\n".join(f"fine_{k}" for k in range(100)))
    (raw / "coarse_label_names.txt").write_text("\n".join(f"coarse_{k}" for k in range(20)))
    convert("cifar100", raw)
    found = sources.load("cifar100")
    assert found.labels.tolist() == [10, 11, 12] and found.columns["superclass"].tolist() == [0, 1, 2]
    assert found.names["superclass"][1] == "coarse_1"
    (raw / "test.bin").write_bytes(record[2][:-1])
    with pytest.raises(MissingData, match=r"test\.bin: expected records of 3074 bytes, found 3073 bytes"):
        cifar.read100_binary(raw)


class Evil:
    def __init__(self, call, *arguments):
        self.call = call, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    ("call", "arguments"),
    [(os.system, ("touch evil",)), (eval, ("1",)), (np.load, ("evil",)), (getattr, (1, "real")), (open, ("evil", "w"))],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_evil_pickle_is_refused(raw, monkeypatch, protocol, call, arguments):
    monkeypatch.chdir(raw)
    (raw / "batch").write_bytes(pickle.dumps({b"data": Evil(call, *arguments)}, protocol=protocol))
    with pytest.raises(
        MissingData, match=r"batch: expected arrays and plain containers only, found: .* is not allowed"
    ):
        cifar.unpickle(raw / "batch")
    assert [path.name for path in raw.iterdir()] == ["batch"]  # nothing was done


def test_pickle_names_are_refused_before_they_are_imported(raw):
    (raw / "batch").write_bytes(b"cantigravity\nnothing\n.")
    with pytest.raises(MissingData, match=r"'antigravity\.nothing' is not allowed"):
        cifar.unpickle(raw / "batch")
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize("data", [b"", b"\x80", b"garbage", pickle.dumps([1, 2]), pickle.dumps({1: 2})[:-1]])
def test_broken_pickle_is_named(raw, data):
    (raw / "batch").write_bytes(data)
    with pytest.raises(MissingData, match="batch: expected"):
        cifar.unpickle(raw / "batch")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({b"data": np.zeros((3, 5), np.uint8)}, r"expected 'data', uint8 \[N, 3072\], found \(3, 5\)"),
        ({b"data": None}, "found none"),
        ({b"fine_labels": [1, 2]}, "'fine_labels', a list of 3 integers"),
        ({b"coarse_labels": [1, 2, b"x"]}, "'coarse_labels', a list of 3 integers"),
    ],
)
def test_wrong_cifar_batch_is_named(raw, change, message):
    write_cifar100(raw)
    batch = cifar.unpickle(raw / "train")
    write_batch(raw / "train", batch | change)
    with pytest.raises(MissingData, match=f"train: .*{message}"):
        cifar.read100_pickles(raw)


@pytest.mark.parametrize(("name", "files"), [("svhn", mat.SVHN), ("synth-digits", mat.SYNTH)])
def test_mat_files_convert(raw, name, files):
    """SVHN calls the zero 10."""
    train, test = pixels(3, 32, 32, 3), pixels(2, 32, 32, 3, seed=1)
    savemat(raw / files[0], {"X": train.transpose(1, 2, 3, 0), "y": np.array([[10], [1], [9]], np.uint8)})
    savemat(raw / files[1], {"X": test.transpose(1, 2, 3, 0), "y": np.array([[2], [10]], np.uint8)})
    convert(name, raw)
    found = sources.load(name)
    assert np.array_equal(found.images.pixels.numpy(), np.concatenate([train, test]))
    assert found.labels.tolist() == [0, 1, 9, 2, 0] and found.columns["split"].tolist() == [0, 0, 0, 1, 1]


def test_wrong_mat_file_is_named(raw):
    savemat(raw / "train_32x32.mat", {"X": pixels(3, 32, 32)})
    (raw / "test_32x32.mat").write_bytes(b"no")
    with pytest.raises(MissingData, match=r"train_32x32\.mat: expected X, uint8"):
        mat.read_svhn(raw)
    savemat(raw / "train_32x32.mat", {"X": pixels(32, 32, 3, 1), "y": np.array([[1]])})
    with pytest.raises(MissingData, match=r"test_32x32\.mat: expected a MATLAB file"):
        mat.read_svhn(raw)


def test_cifar101_converts(raw):
    images = pixels(4, 32, 32, 3)
    np.save(raw / "cifar10.1_v6_data.npy", images)
    np.save(raw / "cifar10.1_v6_labels.npy", np.array([0, 9, 3, 3], np.int32))
    convert("cifar10.1", raw)
    found = sources.load("cifar10.1")
    assert np.array_equal(found.images.pixels.numpy(), images) and found.columns["split"].tolist() == [1] * 4
    assert found.where("label", "cat").tolist() == [2, 3]


@pytest.mark.parametrize("name", ["cifar10-c", "cifar100-c"])
def test_corrupted_cifar_converts(raw, name):
    """Two corruptions of two images at five severities, as published: severity after severity."""
    fog, noise = pixels(10, 32, 32, 3), pixels(10, 32, 32, 3, seed=1)
    np.save(raw / "gaussian_noise.npy", noise)
    np.save(raw / "fog.npy", fog)
    np.save(raw / "labels.npy", np.array([4, 7] * 5))
    convert(name, raw)
    found = sources.load(name)
    assert np.array_equal(found.images.pixels.numpy(), np.concatenate([fog, noise]))
    assert found.names["corruption"] == ("fog", "gaussian_noise")
    assert found.columns["severity"].tolist() == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5] * 2
    assert found.columns["image"].tolist() == [0, 1] * 10 and found.labels.tolist() == [4, 7] * 10
    np.save(raw / "fog.npy", fog[:9])
    with pytest.raises(MissingData, match=r"fog\.npy: expected 10 images, one per label, found 9"):
        arrays.read_corrupted(raw)


def test_arrays_of_objects_are_refused(raw):
    np.save(raw / "x.npy", np.array([Evil(os.getcwd)], dtype=object), allow_pickle=True)
    with pytest.raises(MissingData, match=r"x\.npy: expected a numpy array, found: .*objects"):
        arrays.read_array(raw / "x.npy")


def test_imagenet32_converts(raw):
    """Labels count from 1 in the batches."""
    images = pixels(11, 32, 32, 3)
    for k, name in enumerate(arrays.IMAGENET32):
        np.savez(raw / name, data=flat(images[k : k + 1]), labels=np.array([k + 990]))
    convert("imagenet32", raw)
    found = sources.load("imagenet32")
    assert np.array_equal(found.images.pixels.numpy(), images)
    assert found.labels.tolist() == [k + 989 for k in range(11)] and found.where("split", 1).tolist() == [10]
    np.savez(raw / "val_data.npz", data=np.zeros((1, 5), np.uint8), labels=np.array([1]))
    with pytest.raises(MissingData, match=r"val_data\.npz: expected uint8 \[1, 3072\]"):
        joined(arrays.read_imagenet32(raw))


def write_image(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path)


def test_domain_folders_convert(raw):
    for k, domain in enumerate(("photo", "art_painting", "cartoon", "sketch")):
        for name in sources.SOURCES["pacs"].labels:
            write_image(raw / "pacs" / domain / name / "a.png", np.full((9, 9, 3), 20 * k, np.uint8))
    write_image(raw / "pacs" / "sketch" / "dog" / "b.jpg", np.full((64, 64, 3), 200, np.uint8))
    (raw / "pacs" / "sketch" / "dog" / ".DS_Store").write_bytes(b"x")
    convert("pacs", raw)
    found = sources.load("pacs")
    assert len(found.labels) == 29 and found.images.shape == (3, 64, 64)
    assert found.names["domain"] == ("photo", "art_painting", "cartoon", "sketch")
    assert found.where("domain", "sketch").tolist() == list(range(21, 29))
    assert found.columns["paths"][22] == "sketch/dog/b.jpg" and found.labels[22] == 0
    assert (found.images.pixels[7] == 20).all()


def test_domain_names_may_be_spelt_differently(raw):
    for domain in ("Art", "Clipart", "Product", "RealWorld"):
        write_image(raw / domain / "Mug" / "1.png", pixels(8, 8, 3))
    assert joined(folders.read_domains(raw, 8, ("Art", "Clipart", "Product", "Real World"))).shape == (4, 8, 8, 3)


def test_class_folders_convert(raw):
    for k in range(1, 12):
        write_image(raw / f"Sample{k:03}" / "img.png", np.full((28, 28), 10 * k, np.uint8))
    convert("font-digits", raw)
    found = sources.load("font-digits")
    assert found.labels.tolist() == list(range(10))  # Sample011 is the letter A
    assert found.images.pixels[:, 0, 0, 0].tolist() == [255 - 10 * k for k in range(1, 11)]  # ink becomes bright


def test_imagenet_r_is_a_test_set(raw):
    for name in ("n01443537", "n01484850"):
        write_image(raw / name / "a.jpg", pixels(70, 90, 3))
    got = folders.read_classes(raw, 64, split=1)
    assert got.classes == ("n01443537", "n01484850") and got.columns["split"].tolist() == [1, 1]
    assert joined(got).shape == (2, 64, 64, 3)


def test_lists_of_files_convert(raw):
    images = pixels(3, 32, 32, 3)
    for k, part in enumerate(("train", "train", "test")):
        write_image(raw / "mnist_m" / f"mnist_m_{part}" / f"{k:08}.png", images[k])
    (raw / "mnist_m" / "mnist_m_train_labels.txt").write_text("00000000.png 5\n00000001.png 0\n")
    (raw / "mnist_m" / "mnist_m_test_labels.txt").write_text("00000002.png 7\n")
    convert("mnist-m", raw)
    found = sources.load("mnist-m")
    assert np.array_equal(found.images.pixels.numpy(), images)
    assert found.labels.tolist() == [5, 0, 7] and found.columns["split"].tolist() == [0, 0, 1]


def test_tiny_imagenet_reads_val_by_its_annotations(raw):
    for wnid in ("n02", "n01"):
        write_image(raw / "train" / wnid / "images" / f"{wnid}_0.JPEG", pixels(64, 64, 3))
    write_image(raw / "val" / "images" / "val_0.JPEG", pixels(64, 64, 3))
    (raw / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn02\t0\t0\t63\t63\n")
    (raw / "wnids.txt").write_text("n02\nn01\n")
    (raw / "words.txt").write_text("n01\tgoldfish, Carassius\nn02\tbee\nn03\tother\n")
    got = folders.read_tiny_imagenet(raw)
    assert got.labels.tolist() == [0, 1, 1] and got.columns["split"].tolist() == [0, 0, 1]
    assert got.classes == ("goldfish", "bee") and joined(got).shape == (3, 64, 64, 3)


def test_usps_tables_convert(raw):
    """Grey values −1, 0, 1 become 0, 128 (127.5 is rounded to even), 255."""
    (raw / "zip.train").write_text("6.0000 " + " ".join(["-1", "0.0"] * 128) + " \n")
    with gzip.open(raw / "zip.test.gz", "wt") as file:
        file.write("9 " + " ".join(["1"] * 256) + "\n")
    convert("usps", raw)
    found = sources.load("usps")
    assert found.images.pixels[0, 0, :2, 0].tolist() == [0, 128] and (found.images.pixels[1] == 255).all()
    assert found.labels.tolist() == [6, 9] and found.columns["split"].tolist() == [0, 1]
    (raw / "zip.train").write_text("6 1 2\n")
    with pytest.raises(MissingData, match=r"zip\.train: expected lines of 257 numbers"):
        tables.read_usps(raw)


def test_semeion_converts(raw):
    line = " ".join(["1.0000"] + ["0.0000"] * 255 + ["0"] * 3 + ["1"] + ["0"] * 6)
    (raw / "semeion.data").write_text(f"{line} \n")
    convert("semeion", raw)
    found = sources.load("semeion")
    assert found.labels.tolist() == [3] and found.images.pixels[0, 0, :2, 0].tolist() == [255, 0]


def test_leaf_converts(raw):
    data = {
        "users": ["f0_1", "f1_2"],
        "user_data": {"f0_1": {"x": [[1.0] * 784], "y": [61]}, "f1_2": {"x": [[0.0] * 784] * 2, "y": [0, 10]}},
    }
    (raw / "all_data_0.json").write_text(json.dumps(data))
    convert("femnist", raw)
    found = sources.load("femnist")
    assert found.labels.tolist() == [61, 0, 10] and found.where("writer", "f1_2").tolist() == [1, 2]
    assert found.names["label"][61] == "z" and (found.images.pixels[0] == 255).all()
    (raw / "all_data_0.json").write_text(json.dumps({"users": ["a"], "user_data": {"a": {"x": [[1.0]], "y": [1]}}}))
    with pytest.raises(MissingData, match=r"all_data_0\.json: expected LEAF's users"):
        tables.read_leaf(raw)


def test_unreadable_image_is_named(raw):
    (raw / "a.png").write_bytes(b"no image")
    with pytest.raises(MissingData, match=r"a\.png: expected an image, found"):
        read_image(raw / "a.png", (4, 4), 3)
    Image.fromarray(np.zeros((4, 4), np.int32)).save(raw / "deep.tif")
    with pytest.raises(MissingData, match="not 8 bits per channel"):
        read_image(raw / "deep.tif", (4, 4), 1)


def test_conversion_without_the_files_says_what_it_looks_for(raw):
    with pytest.raises(
        MissingData, match=r"expected here or one folder below cifar-100-python \(train, test, meta\); or"
    ):
        convert("cifar100", raw)
    with pytest.raises(MissingData, match="expected a folder with the files of 'mnist'"):
        convert("mnist", raw / "gone")
    with pytest.raises(MissingData, match="did you mean 'mnist'"):
        convert("mnits", raw)
    with pytest.raises(MissingData, match="it is embedded"):
        convert("digits", raw)


def test_conversion_overwrites_nothing(raw):
    write_mnist(raw)
    path = convert("mnist", raw)
    before = path.read_bytes()
    with pytest.raises(MissingData, match=r"mnist\.npz exists already and is not overwritten"):
        convert("mnist", raw)
    assert path.read_bytes() == before


def test_conversion_leaves_no_wrong_pack(raw, tmp_path):
    write_mnist(raw, size=20)
    with pytest.raises(MissingData, match=r"expected uint8 images \[N, 28, 28, 1\]"):
        convert("mnist", raw)
    write_mnist(raw)
    write_idx(raw / "t10k-labels-idx1-ubyte", np.array([7, 12, 1]))
    with pytest.raises(MissingData, match="expected labels 0 to 9, found 12 in row 5"):
        convert("mnist", raw)
    assert not list((tmp_path / "packs").iterdir())


def test_conversion_into_a_folder_that_cannot_be_written(raw, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ACCLIMATE_DATA", str(tmp_path / "file" / "packs"))
    write_mnist(raw)
    with pytest.raises(MissingData, match="set ACCLIMATE_DATA to a folder of yours"):
        convert("mnist", raw)


class Part(list):
    """Stands in for a data set of the hub's package: rows, columns by name, features."""

    def __init__(self, rows, **names):
        super().__init__(rows)
        self.features = {key: types.SimpleNamespace(names=names.get(key)) for key in (rows[0] if rows else {})}

    def __getitem__(self, key):
        return [row[key] for row in self] if isinstance(key, str) else super().__getitem__(key)


def offer(monkeypatch, **parts):
    """A package `datasets` that offers these parts."""
    asked = []

    def load_dataset(id, config, split):
        asked.append((id, config, split))
        return parts[split]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    return asked


def test_hub_set_is_converted(monkeypatch):
    images = [Image.fromarray(pixels(28, 28, seed=k)) for k in range(2)] + [Image.fromarray(pixels(56, 56, 3))]
    rows = [
        {"image": image, "writer_id": writer, "hsf_id": hsf, "character": label}
        for image, writer, hsf, label in zip(images, ("f2", "f1", "f2"), (0, 4, 0), (5, 61, 10), strict=True)
    ]
    asked = offer(monkeypatch, train=Part(rows, character=list(sources.SOURCES["femnist"].labels)))
    get("femnist")
    found = sources.load("femnist")
    assert asked == [("flwrlabs/femnist", None, "train")]
    assert found.images.shape == (1, 28, 28) and found.labels.tolist() == [5, 61, 10]
    assert found.where("writer", "f2").tolist() == [0, 2] and found.columns["hsf"].tolist() == [0, 4, 0]
    assert np.array_equal(found.images.pixels[0, ..., 0].numpy(), pixels(28, 28))


def test_hub_parts_become_a_split(monkeypatch):
    train = Part([{"image": Image.fromarray(pixels(32, 32, 3)), "label": 3}], label=list("0123456789"))
    test = Part([{"image": Image.fromarray(pixels(32, 32, 3)), "label": 4}], label=list("0123456789"))
    asked = offer(monkeypatch, train=train, test=test)
    get("svhn")
    assert asked == [
        ("ufldl-stanford/svhn", "cropped_digits", "train"),
        ("ufldl-stanford/svhn", "cropped_digits", "test"),
    ]
    assert sources.load("svhn").columns["split"].tolist() == [0, 1]


def test_hub_without_its_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingData, match=r"pip install 'acclimate\[hub\]'"):
        get("cifar100")


def test_hub_that_fails_is_named(monkeypatch):
    offer(monkeypatch)
    with pytest.raises(MissingData, match="'uoft-cs/cifar100' could not be loaded from the Hugging Face hub"):
        get("cifar100")
    with pytest.raises(
        MissingData, match=r"'semeion' has no place on the Hugging Face hub .* get it from semeion\.data"
    ):
        get("semeion")


def test_nothing_but_get_reads_the_hub(monkeypatch, raw):
    """Loading and converting never reach for the network."""
    monkeypatch.setattr(hub, "read_hub", None)
    monkeypatch.setattr(converting, "read_hub", None)
    with pytest.raises(MissingData, match="data set 'cifar100' is not here"):
        sources.load("cifar100")
    with pytest.raises(MissingData, match="expected here or one folder below"):
        convert("cifar100", raw)
