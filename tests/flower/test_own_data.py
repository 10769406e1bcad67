"""Nodes with images of their own: what the server learns of them, and what stays."""

import csv
import json
from contextlib import closing

import numpy as np
import pytest
from PIL import Image

from acclimate.engine.door import is_text
from acclimate.experiment.reader import parse
from acclimate.experiment.run import STORE, run
from acclimate.flower.executor import OnLine, TooFewNodes
from acclimate.flower.node import Node
from acclimate.flower.places import OnNodes
from acclimate.scenarios.nodes import Holder, Nodes
from acclimate.store.database import Store
from flower.inside import Inside

NAMES = ("north", "south")


def draw(folder, number, shade, seed):
    """Small pictures, lighter for one class than for the other."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    for k in range(number):
        pixels = np.clip(rng.normal(shade, 25, (18, 18, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{k:03}.png")


@pytest.fixture
def folders(tmp_path):
    """The south has labels for what it meets, the north has none."""
    for n, name in enumerate(NAMES):
        draw(tmp_path / name / "train" / "dark", 12, 70, n)
        draw(tmp_path / name / "train" / "light", 12, 180, 10 + n)
    draw(tmp_path / "north" / "test", 9, 180, 20)
    draw(tmp_path / "south" / "test" / "dark", 5, 70, 30)
    draw(tmp_path / "south" / "test" / "light", 5, 180, 31)
    return tmp_path


class Owning(Inside):
    def node(self, id):
        name = NAMES[id - 100]
        return Node(self.folder / "nodes" / name, data=self.folder / name, name=name)


def experiment(**more):
    scenario = {"name": "nodes", "labels": ["dark", "light"], "size": 18, **more}
    phases = [{"name": "fedavg", "rounds": 4, "local": {"lr": 0.05}}]
    systems = ["fedavg+tta-bn"]
    return parse(
        {"name": "own", "scenario": scenario, "model": "shallow-cnn", "phases": phases, "systems": systems,
         "test": {"batch_size": 4}}
    )  # fmt: skip


def on_nodes(folder, line, chosen, say=lambda text: None):
    there = OnNodes.of(chosen, folder)
    executor = OnLine(line, there, nodes=2, wait=0, say=say)
    executor.greet()
    there = there.holding(executor.holders(), folder)
    executor.bind(there)
    run(there, folder, executor=executor)
    return there


def test_nodes_train_and_meet_their_own_images_and_predictions_stay(folders):
    line = Owning(folders)
    there = on_nodes(folders / "runs", line, experiment())
    with closing(Store(folders / "runs" / STORE)) as store:
        found = store.find(there.run_name)
        assert found.finished
        accuracy = {row["system"]: row["accuracy"] for row in found.table()}
        assert set(accuracy) == {"none", "fedavg+tta-bn"}
        assert accuracy["none"] > 0.7  # of the ten images that the south has labels for
    for system in ("none", "fedavg+tta-bn"):
        file = folders / "nodes" / "north" / there.run_name / "predictions" / f"{system}-seed-0.csv"
        rows = list(csv.DictReader(file.read_text().splitlines()))
        assert [row["path"] for row in rows] == [str(folders / "north" / "test" / f"{k:03}.png") for k in range(9)]
        assert {row["client"] for row in rows} == {"north"}
        assert not (folders / "nodes" / "south" / there.run_name / "predictions").exists()
    sent = b"".join(blob for _, _, _, answer in line.letters for blob in answer.blobs.values())
    for word in (b"answers", b"probabilities", b".png"):
        assert word not in sent
    assert not (folders / "runs" / there.run_name / "predictions").exists()


def test_a_second_sitting_knows_who_takes_part(folders):
    first = on_nodes(folders / "runs", Owning(folders), experiment())
    line = Owning(folders)
    again = on_nodes(folders / "runs", line, experiment())
    assert again.holders == first.holders
    assert {kind for kind, _ in line.asked} == {"query"}


class Saying(Owning):
    """A third node says something of itself."""

    def __init__(self, folder, said):
        super().__init__(folder, nodes=3)
        self.said = said

    def node(self, id):
        return super().node(min(id, 101))

    def changed(self, kind, id, answer):
        return answer if id < 102 else answer._replace(text=json.dumps({"has": [], **self.said}))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"holder": ["west", 10**7, 0]}, "expected 0 to 1,000,000 images to train on and as many to meet, found"),
        ({"holder": ["west", 24, -5]}, "expected 0 to 1,000,000 images to train on and as many to meet, found"),
        ({"holder": ["west", 24, 2.5]}, "expected 0 to 1,000,000 images to train on and as many to meet, found"),
        ({"holder": ["west", 24]}, "expected 0 to 1,000,000 images to train on and as many to meet, found"),
        ({"holder": ["\ud800", 24, 9]}, "expected a name of 1 to 100 letters, found"),
        ({"holder": ["", 24, 9]}, "expected a name of 1 to 100 letters, found"),
        (
            {"holder": ["north", 24, 9]},
            "it is 'north', with 24 images to train on and 9 to meet, and node 100 is there",
        ),
        ({"part": [0, 1]}, "it sent something that cannot be used"),
    ],
)
def test_a_node_that_says_what_cannot_be_is_refused_and_the_others_go_on(folders, said, why):
    heard = []
    there = on_nodes(folders / "runs", Saying(folders, said), experiment(), heard.append)
    assert there.holders == (("north", 24, 9), ("south", 24, 10))
    assert [text for text in heard if text.startswith("node 102 does not take part") and why in text]
    assert all(map(is_text, heard))


def test_a_node_that_has_other_images_than_when_the_run_began_is_named(folders):
    class Killed(BaseException):
        """The server dies: nothing catches it."""

    def die(kind, number, node):
        if kind == "train":
            raise Killed

    with pytest.raises(Killed):
        on_nodes(folders / "runs", Owning(folders, lose=die), experiment())
    (folders / "north" / "test" / "008.png").unlink()
    heard = []
    on_nodes(folders / "runs", Owning(folders), experiment(), heard.append)
    why = "it is 'north', with 24 images to train on and 8 to meet, and had 9 to meet when the run began"
    assert [text for text in heard if why in text]


def test_the_server_makes_no_room_for_images_that_it_never_sees():
    scenario = Nodes(labels=("dark", "light"), size=224).on_server([Holder("north", 10**6, 10**6)])
    assert scenario.dataset.images.shape == (3, 224, 224)
    assert len(scenario.dataset.images) == 10**6
    assert scenario.dataset.images.pixels.untyped_storage().nbytes() < 1000


def test_a_node_without_images_says_what_to_give(folders):
    with pytest.raises(TooFewNodes, match="give its folder and a name"):
        on_nodes(folders / "runs", Inside(folders), experiment())


def test_images_that_do_not_fit_are_named(folders):
    with pytest.raises(TooFewNodes, match=r"expected images of 1 channel\(s\), found 3"):
        on_nodes(folders / "runs", Owning(folders), experiment(channels=1))
