import numpy as np
import pytest
from PIL import Image

from acclimate.data import own
from acclimate.data.own import csv_of, folder_per_client
from acclimate.errors import MissingData


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ACCLIMATE_CACHE", str(tmp_path / "cache"))


def save(path, value=0, height=6, width=6, channels=3, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (height, width) if channels == 1 else (height, width, channels)
    Image.fromarray(np.full(shape, value, np.uint8)).save(path, **options)


def hospital(folder):
    save(folder / "north" / "ill" / "a.png", 10)
    save(folder / "north" / "well" / "b.png", 20)
    save(folder / "south" / "well" / "c.png", 30)
    save(folder / "south" / "d.png", 40)
    (folder / "south" / "notes.txt").write_text("not an image")
    (folder / ".git").mkdir()
    return folder


def test_folder_per_client(tmp_path):
    found = folder_per_client(hospital(tmp_path / "own"))
    assert found.names == {"label": ("ill", "well"), "client": ("north", "south")}
    assert found.images.pixels[:, 0, 0, 0].tolist() == [10, 20, 40, 30]
    assert found.labels.tolist() == [0, 1, -1, 1] and found.classes == 2
    assert found.where("client", "south").tolist() == [2, 3]
    assert found.name == "own" and found.images.shape == (3, 6, 6)


def test_mean_and_deviation_are_those_of_the_images(tmp_path):
    """Grey 10, 20, 30, 40 of 255: mean 25/255, variance 125/255²."""
    found = folder_per_client(hospital(tmp_path / "own"))
    assert found.mean == pytest.approx((25 / 255,) * 3, abs=1e-4)
    assert found.std == pytest.approx((125**0.5 / 255,) * 3, abs=1e-4)


def test_clients_without_labels(tmp_path):
    for client in ("2", "10"):
        save(tmp_path / client / "a.png", int(client), channels=1)
    found = folder_per_client(tmp_path)
    assert found.labels.tolist() == [-1, -1] and found.classes == 0
    assert found.names["client"] == ("2", "10")  # by number
    assert found.images.shape == (1, 6, 6)  # grey stays grey
    assert [found.images.pixels[row, 0, 0, 0].item() for row in found.where("client", "10")] == [10]


def test_classes_can_be_given_in_a_models_order(tmp_path):
    folder = hospital(tmp_path / "own")
    found = folder_per_client(folder, classes=("well", "unsure", "ill"))
    assert found.labels.tolist() == [2, 0, -1, 0] and found.classes == 3
    assert found.digest != folder_per_client(folder).digest
    with pytest.raises(MissingData, match="expected the classes well, il; found 'ill': did you mean 'il'"):
        folder_per_client(folder, classes=("well", "il"))


def test_images_of_several_sizes_need_a_size(tmp_path):
    save(tmp_path / "c" / "a.png", 10, height=6)
    save(tmp_path / "c" / "b.png", 20, height=9)
    with pytest.raises(
        MissingData, match=r"b\.png: expected 6x6 pixels as in a\.png, found 9x6; give a size .* size=64"
    ):
        folder_per_client(tmp_path)
    found = folder_per_client(tmp_path, size=4)
    assert found.images.shape == (3, 4, 4) and found.images.pixels[:, 0, 0, 0].tolist() == [10, 20]


def test_photographs_are_turned_upright(tmp_path):
    """Orientation 6: the camera lay on its side, so 4 x 6 pixels are 6 x 4."""
    exif = Image.Exif()
    exif[0x0112] = 6
    save(tmp_path / "c" / "a.jpg", 10, height=4, width=6, exif=exif)
    save(tmp_path / "c" / "b.jpg", 10, height=6, width=4)
    assert folder_per_client(tmp_path).images.shape == (3, 6, 4)


def test_unreadable_image_is_named(tmp_path):
    save(tmp_path / "c" / "a.png")
    (tmp_path / "c" / "b.png").write_bytes(b"no image")
    with pytest.raises(MissingData, match=r"b\.png: expected an image, found"):
        folder_per_client(tmp_path)
    whole = (tmp_path / "c" / "a.png").read_bytes()
    (tmp_path / "c" / "b.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(MissingData, match=r"b\.png: expected an image, found"):
        folder_per_client(tmp_path)
    assert not list((tmp_path / "cache").glob("images/*"))


def test_nothing_there_is_said(tmp_path):
    with pytest.raises(MissingData, match=r"expected images in <client>/<class>/ or in <client>/, found none"):
        folder_per_client(tmp_path)
    with pytest.raises(MissingData, match="expected a folder with a folder per client"):
        folder_per_client(tmp_path / "gone")


def test_second_opening_decodes_nothing_and_changes_are_noticed(tmp_path, monkeypatch):
    folder = hospital(tmp_path / "own")
    first = folder_per_client(folder)
    with monkeypatch.context() as patch:
        patch.setattr(own, "_decode", None)
        assert folder_per_client(folder).digest == first.digest
    save(folder / "north" / "ill" / "a.png", 99, quality=1, compress_level=0)
    changed = folder_per_client(folder)
    assert changed.digest != first.digest and changed.images.pixels[0, 0, 0, 0] == 99


def test_csv_lists_images(tmp_path):
    for name, value in (("a", 1), ("b", 2), ("c", 3)):
        save(tmp_path / "files" / f"{name}.png", value)
    (tmp_path / "list.csv").write_text(
        "client,path,label,age\n1,files/a.png,dog,3\n2,files/b.png,,4\n1,files/c.png,cat,5\n", encoding="utf-8-sig"
    )
    found = csv_of(tmp_path / "list.csv")
    assert found.labels.tolist() == [1, -1, 0] and found.names["label"] == ("cat", "dog")
    assert found.columns["client"].tolist() == [0, 1, 0]
    assert found.images.pixels[:, 0, 0, 0].tolist() == [1, 2, 3] and found.name == "list"


def test_csv_without_labels(tmp_path):
    save(tmp_path / "a.png")
    (tmp_path / "list.csv").write_text("path,client\na.png,x\n")
    assert csv_of(tmp_path / "list.csv").labels.tolist() == [-1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a line of column names and a line per image"),
        ("path,client\n", "expected a line of column names and a line per image"),
        ("file,client\na.png,x\n", "expected the columns path, client and perhaps label; found file, client"),
        ("path,client\na.png,x\na.png\n", "line 3: expected a path and a client"),
        ("path,client\na.png,x\ngone.png,x\n", r"line 3: expected an image at .*gone\.png, found none"),
    ],
)
def test_wrong_csv_is_named(tmp_path, text, message):
    save(tmp_path / "a.png")
    (tmp_path / "list.csv").write_text(text)
    with pytest.raises(MissingData, match=rf"list\.csv.*{message}"):
        csv_of(tmp_path / "list.csv")


def test_missing_csv_is_named(tmp_path):
    with pytest.raises(MissingData, match=r"gone\.csv: expected a CSV file"):
        csv_of(tmp_path / "gone.csv")
