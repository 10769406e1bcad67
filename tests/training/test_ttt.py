import torch

import battery
import toys
from acclimate import trees
from acclimate.engine.known import Known
from acclimate.engine.live import Extending
from acclimate.models.rotation import turned_once
from acclimate.sgd import LocalSGD
from acclimate.training.ttt import TTT


def test_ttt_adds_the_loss_of_rotations():
    """One pixel x = 1, body 1, both heads at zero: classes p = (½, ½) of class 0, turns all ¼, each right once.

    The head of classes moves by lr (½, −½); the rotation head's gradient is ¼ − ¼ = 0 for every turn: it stays.
    """
    algorithm = TTT(LocalSGD(lr=1.0))
    build = Extending(toys.two_layers, (algorithm,))
    zeros = {"1.weight": torch.ones(1, 1), "2.weight": torch.zeros(2, 1)}
    known = {"model": {**zeros, "extra.rotation.weight": torch.zeros(4, 1), "extra.rotation.bias": torch.zeros(4)}}
    played = toys.play(algorithm, [toys.client(toys.Fixed([1.0], [0]), build, known=known)])
    w = played.server.w
    torch.testing.assert_close(w["2.weight"], torch.tensor([[0.5], [-0.5]]))
    torch.testing.assert_close(w["extra.rotation.weight"], torch.zeros(4, 1))
    assert played.replies[0].metrics["loss"] == torch.tensor(8.0).log().item()  # ln 2 + ln 4


def test_ttt_with_random_turns_shows_an_image_in_one():
    """One pixel looks alike in every turn: the loss is ln 4 again, but the one turn drawn moves its row up by 1 − ¼."""
    algorithm = TTT(LocalSGD(lr=1.0), turns="random")
    build = Extending(toys.two_layers, (algorithm,))
    zeros = {"1.weight": torch.ones(1, 1), "2.weight": torch.zeros(2, 1)}
    known = {"model": {**zeros, "extra.rotation.weight": torch.zeros(4, 1), "extra.rotation.bias": torch.zeros(4)}}
    played = toys.play(algorithm, [toys.client(toys.Fixed([1.0], [0]), build, known=known)])
    moved = played.server.w["extra.rotation.weight"].flatten().sort().values
    torch.testing.assert_close(moved, torch.tensor([-0.25, -0.25, -0.25, 0.75]))
    assert played.replies[0].metrics["loss"] == torch.tensor(8.0).log().item()


def test_turns_drawn_for_each_image_are_those_its_label_names():
    torch.manual_seed(0)
    x = torch.rand(40, 2, 5, 5)
    turned, labels = turned_once(x)
    assert set(labels.tolist()) == {0, 1, 2, 3}
    assert all(torch.equal(t, image.rot90(int(k), (1, 2))) for t, image, k in zip(turned, x, labels, strict=True))


def test_ttt_exports_a_plain_model_and_the_rotation_head():
    known = Known([battery.run_phase("ttt", rounds=1)]).of(None)
    assert set(known["rotation"]) == {"weight", "bias"}
    assert known["model"].keys() == battery.trained().of(None)["model"].keys()
    assert not trees.equal(known["model"], battery.trained().of(None)["model"])
