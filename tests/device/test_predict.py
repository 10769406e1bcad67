"""`acclimate adapt`: predictions for unlabelled image files."""

import csv
import io
import os
import sys

import numpy as np
import pytest
import torch
from PIL import Image

import acclimate as ac
import battery
from acclimate import trees
from acclimate.adapters import none
from acclimate.adapters.none import NoAdaptation
from acclimate.device import predict
from acclimate.errors import ConfigError, Damage, DamagedFile, ForeignState, MissingData
from bundles import exported


@pytest.fixture
def pictures(tmp_path):
    """Nine image files in two folders, and what they show."""
    held = battery.population().streams[0].segments[0][1]
    x = battery.population().examples(held).x[:9]
    for i, image in enumerate(x):
        path = tmp_path / "images" / ("a" if i < 5 else "b") / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((image[0] * 255).round().byte().numpy()).save(path)
    return x


def lines(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_adapt_predicts_a_folder_as_the_adapted_model_does(pictures, tmp_path, call):
    adapted = exported("tent", tmp_path / "bundle", lr=0.1)
    code, out, _ = call("adapt", "bundle", "images", "-o", "out.csv", "--batch-size", "4")
    assert code == 0
    assert "written: out.csv (9 images, 9 of them now)" in out
    logits = torch.cat([adapted(part) for part in pictures.split(4)])
    p = logits.softmax(1)
    found = lines(tmp_path / "out.csv")
    assert [row["path"] for row in found] == [f"images/{'a' if i < 5 else 'b'}/{i}.png" for i in range(9)]
    assert [row["class"] for row in found] == [f"class {k}" for k in logits.argmax(1).tolist()]
    np.testing.assert_allclose([float(row["probability"]) for row in found], p.max(1).values, atol=1e-5)
    doubt = -(p * p.log()).sum(1)
    np.testing.assert_allclose([float(row["entropy"]) for row in found], doubt, atol=1e-5)
    assert {row["intervened"] for row in found} == {"no"}
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.csv"]


def test_adapt_keeps_its_state_between_calls(pictures, tmp_path, call):
    exported("tent", tmp_path / "bundle", lr=0.1)
    for folder in ("a", "b"):
        assert (
            call("adapt", "bundle", f"images/{folder}", "-o", f"{folder}.csv", "--state", "s", "--batch-size", "5")[0]
            == 0
        )
    assert call("adapt", "bundle", "images", "-o", "all.csv", "--batch-size", "5")[0] == 0
    assert lines(tmp_path / "a.csv") + lines(tmp_path / "b.csv") == lines(tmp_path / "all.csv")
    exported("em", tmp_path / "other")
    code, _, err = call("adapt", "other", "images", "-o", "x.csv", "--state", "s")
    assert code == 2
    assert "s is a state of 'tent'" in err


def test_adapt_takes_csv_lists_and_stdin(pictures, tmp_path, call, monkeypatch):
    exported("none", tmp_path / "bundle")
    (tmp_path / "images" / "list.csv").write_text("path,client\nb/7.png,x\na/0.png,y\n")
    assert call("adapt", "bundle", "images/list.csv", "-o", "one.csv")[0] == 0
    assert [row["path"] for row in lines(tmp_path / "one.csv")] == ["images/b/7.png", "images/a/0.png"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("images/a/0.png\n\nimages/b/7.png\n"))
    assert call("adapt", "bundle", "-", "-o", "two.csv")[0] == 0
    assert lines(tmp_path / "two.csv") == lines(tmp_path / "one.csv")[::-1]


@pytest.mark.parametrize("after", [0, 1, 2])
@pytest.mark.parametrize("when", ["rows", "state"])
def test_adapt_stopped_anywhere_goes_on_with_the_same_result(pictures, tmp_path, monkeypatch, after, when):
    """Stopped between the rows of a batch and its state, or behind both."""
    exported("tent", tmp_path / "bundle", lr=0.1)
    paths = predict.listed_images(str(tmp_path / "images"), ())
    predict.predict_images(tmp_path / "bundle", paths, tmp_path / "whole.csv", batch_size=3)
    place, calls = predict._Progress, []

    class Stopped(Exception):
        pass

    original = place._save if when == "rows" else place.add

    def stopping(self, *args):
        calls.append(1)
        if when == "rows" and len(calls) == after + 2:  # the first one is at the beginning
            raise Stopped
        original(self, *args)
        if when == "state" and len(calls) == after + 1:
            raise Stopped

    monkeypatch.setattr(place, "_save" if when == "rows" else "add", stopping)
    with pytest.raises(Stopped):
        predict.predict_images(tmp_path / "bundle", paths, tmp_path / "out.csv", tmp_path / "s", batch_size=3)
    monkeypatch.setattr(place, "_save" if when == "rows" else "add", original)
    now, total = predict.predict_images(tmp_path / "bundle", paths, tmp_path / "out.csv", tmp_path / "s", batch_size=3)
    assert (tmp_path / "out.csv").read_text() == (tmp_path / "whole.csv").read_text()
    assert total == 9
    assert now == 9 - 3 * (after + (when == "state"))
    adapted = ac.load(tmp_path / "bundle")
    adapted.load(tmp_path / "s")
    assert not trees.equal(adapted.state(), ac.load(tmp_path / "bundle").state())


def test_adapt_says_where_a_guard_stepped_in(pictures, tmp_path, monkeypatch):
    exported("none", tmp_path / "bundle")

    class Guarded(NoAdaptation):
        def adapt(self, x):
            self.figures = {"stepped_in": torch.tensor(1.0)}

    monkeypatch.setattr(none, "NoAdaptation", Guarded)
    paths = predict.listed_images(str(tmp_path / "images"), ())
    predict.predict_images(tmp_path / "bundle", paths, tmp_path / "out.csv")
    assert {row["intervened"] for row in lines(tmp_path / "out.csv")} == {"yes"}


def test_adapt_says_what_is_wrong(pictures, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exported("none", tmp_path / "bundle")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingData, match=r"empty: expected images \(.png, .jpg, ...\) in this folder or below"):
        predict.listed_images("empty", ())
    with pytest.raises(MissingData, match="expected a folder of images or a CSV file with a column path"):
        predict.listed_images("nothing", ())
    (tmp_path / "list.csv").write_text("file\nx.png\n")
    with pytest.raises(MissingData, match=r"expected a column 'path' and a line per image, found \['file'\]"):
        predict.listed_images("list.csv", ())
    bundle, out = tmp_path / "bundle", tmp_path / "out.csv"
    with pytest.raises(ConfigError, match="batch size: expected 1 or more, found -5"):
        predict.predict_images(bundle, ["images/a/0.png"], out, batch_size=-5)
    stop_after_the_first_batch(monkeypatch, bundle, predict.listed_images("images", ()), out)
    with pytest.raises(ConfigError, match=r"out.csv.progress is of other images; finish those first"):
        predict.predict_images(bundle, ["images/a/0.png"], out)
    out.with_name("out.csv.progress").unlink()
    with pytest.raises(ConfigError, match=r"out.csv exists already and is not overwritten"):
        predict.predict_images(bundle, ["images/a/0.png"], out)
    exported("em", tmp_path / "em")
    (tmp_path / "s").write_bytes(b"nothing")
    with pytest.raises(ForeignState, match="expected a state written by save"):
        predict.predict_images(tmp_path / "em", ["images/a/0.png"], tmp_path / "x.csv", tmp_path / "s")


def stop_after_the_first_batch(monkeypatch, bundle, paths, out):
    """Leave predictions half-way: three images are done."""

    class Stopped(Exception):
        pass

    class Stopping(predict._Progress):
        def add(self, *args):
            super().add(*args)
            raise Stopped

    with monkeypatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(predict, "_Progress", Stopping)
        predict.predict_images(bundle, paths, out, batch_size=3)


@pytest.mark.filterwarnings("default::acclimate.errors.Damage")
def test_adapt_goes_on_past_images_that_cannot_be_read(pictures, tmp_path, monkeypatch, call):
    """What is learnt and said of the others is as if those had not been listed, also where it was stopped."""
    exported("tent", tmp_path / "bundle", lr=0.1)
    paths = predict.listed_images(str(tmp_path / "images"), ())
    predict.predict_images(tmp_path / "bundle", paths, tmp_path / "without.csv", tmp_path / "s", batch_size=3)
    for name in ("a/1-cut.png", "a/2-cut.png", "b/9-cut.png"):
        (tmp_path / "images" / name).write_bytes((tmp_path / "images" / "a" / "0.png").read_bytes()[:40])
    paths = predict.listed_images(str(tmp_path / "images"), ())
    stop_after_the_first_batch(monkeypatch, tmp_path / "bundle", paths, tmp_path / "with.csv")
    words = ("-o", "with.csv", "--state", "t", "--batch-size", "3")
    code, out, err = call("adapt", "bundle", str(tmp_path / "images"), *words)
    assert code == 0
    assert "written: with.csv (12 images, 7 of them now)" in out
    assert (
        "note: 3 of 12 images could not be read and have no prediction; with.csv says why, in column 'problem'" in err
    )
    found = lines(tmp_path / "with.csv")
    unread = [row for row in found if row["problem"]]
    assert [row for row in found if not row["problem"]] == lines(tmp_path / "without.csv")
    assert [row["path"].rpartition("/")[2] for row in unread] == ["1-cut.png", "2-cut.png", "9-cut.png"]
    assert all(row["problem"].startswith("expected an image, found") and not row["class"] for row in unread)
    assert (tmp_path / "t").read_bytes() == (tmp_path / "s").read_bytes()


def test_adapt_where_no_image_can_be_read_says_so_and_leaves_nothing(tmp_path):
    exported("none", tmp_path / "bundle")
    with pytest.raises(MissingData, match=r"none of the 2 images can be read; b.png: expected an image, found"):
        predict.predict_images(tmp_path / "bundle", ["a.png", "b.png"], tmp_path / "out.csv", batch_size=1)
    assert [path.name for path in tmp_path.iterdir()] == ["bundle"]


def test_adapt_goes_on_past_whatever_a_decoder_does(pictures, tmp_path, monkeypatch):
    exported("none", tmp_path / "bundle")
    read = predict.read_image

    def failing(path, *args, **options):
        if path.name == "3.png":
            raise MemoryError
        return read(path, *args, **options)

    monkeypatch.setattr(predict, "read_image", failing)
    paths = predict.listed_images(str(tmp_path / "images"), ())
    with pytest.warns(Damage, match="1 of 9 images could not be read"):
        predict.predict_images(tmp_path / "bundle", paths, tmp_path / "out.csv")
    assert [row["problem"] for row in lines(tmp_path / "out.csv")] == [""] * 3 + ["MemoryError"] + [""] * 5


def test_adapt_takes_file_names_that_are_not_utf_8(pictures, tmp_path, call):
    exported("none", tmp_path / "bundle")
    (tmp_path / "images" / "a" / "0.png").rename(os.fsdecode(bytes(tmp_path / "images" / "a") + b"/caf\xe9.png"))
    assert call("adapt", "bundle", "images", "-o", "out.csv")[0] == 0
    found = lines(tmp_path / "out.csv")
    assert found[4]["path"] == r"images/a/caf\udce9.png"
    assert found[4]["class"]


def test_list_with_a_line_or_a_name_that_cannot_be_used_is_refused(tmp_path):
    (tmp_path / "short.csv").write_text("client,path\nx,a.png\ny\n")
    with pytest.raises(MissingData, match=r"short.csv, line 3: expected a path in column 'path', found none"):
        predict.listed_images(str(tmp_path / "short.csv"), ())
    stdin = io.TextIOWrapper(io.BytesIO(b"caf\xe9.png\n"), encoding="utf-8")
    with pytest.raises(MissingData, match="stdin: expected a path per line, in UTF-8"):
        predict.listed_images("-", stdin)


@pytest.mark.parametrize("how", ["cut", "flipped", "empty"])
def test_adapt_with_damaged_progress_says_how_to_begin_again(pictures, tmp_path, monkeypatch, how):
    exported("tent", tmp_path / "bundle", lr=0.1)
    paths, out = predict.listed_images(str(tmp_path / "images"), ()), tmp_path / "out.csv"
    stop_after_the_first_batch(monkeypatch, tmp_path / "bundle", paths, out)
    beside = tmp_path / "out.csv.progress"
    blob = beside.read_bytes()
    flipped = blob.replace(b"done", b"dome", 1)
    beside.write_bytes({"cut": blob[: len(blob) // 2], "flipped": flipped, "empty": b""}[how])
    with pytest.raises(DamagedFile, match=r"out.csv.progress \(to begin again, remove it with .*out.csv\) was damaged"):
        predict.predict_images(tmp_path / "bundle", paths, out)


@pytest.mark.parametrize("left", [0, 20])
def test_adapt_whose_rows_are_gone_says_how_to_begin_again(pictures, tmp_path, monkeypatch, left):
    exported("none", tmp_path / "bundle")
    paths, out = predict.listed_images(str(tmp_path / "images"), ()), tmp_path / "out.csv"
    stop_after_the_first_batch(monkeypatch, tmp_path / "bundle", paths, out)
    kept = out.read_bytes()[:left]
    out.unlink()
    if kept:
        out.write_bytes(kept)
    with pytest.raises(DamagedFile, match=rf"bytes that .* tells of, found {left}; to begin again, remove it with"):
        predict.predict_images(tmp_path / "bundle", paths, out)
