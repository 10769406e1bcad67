import math

import pytest
import torch
from torch import nn

import toys
from acclimate import params
from acclimate.calibration.bbse import BBSE
from acclimate.contracts import Client


def images_are_logits(id: int | None = None) -> nn.Module:
    return nn.Flatten()


def counting(logits: list[list[float]], labels: list[int], id: int = 0) -> Client:
    data = toys.Fixed(torch.tensor(logits).view(len(logits), -1, 1, 1), labels)
    return toys.client(toys.Fixed([0.0], [0]), images_are_logits, id=id, validation=data, known={"model": {}})


def three(logits: torch.Tensor) -> Client:
    data = toys.Fixed(logits.view(-1, 3, 1, 1), logits.argmax(-1))
    return toys.client(data, images_are_logits, classes=3, known={"model": {}})


def test_bbse_counts_predicted_by_true_classes_over_all_clients():
    """Client 0 predicts (0, 1, 1) of true (0, 0, 1), client 1 predicts (0) of true (1).

    Rows are predictions: Ĉ[0, 0] = 1, Ĉ[1, 0] = 1, Ĉ[1, 1] = 1, Ĉ[0, 1] = 1 (from client 1).
    """
    clients = [
        counting([[2.0, 0.0], [0.0, 1.0], [0.0, 3.0]], [0, 0, 1]),
        counting([[1.0, 0.0], [0.0, 1.0]], [1, 1], id=1),
    ]
    total = toys.play(BBSE(), clients).server
    assert total.tolist() == [[1.0, 1.0], [1.0, 2.0]]


def test_bbse_soft_adds_up_probabilities():
    """Logits (ln 3, 0) are p = (¾, ¼), of true class 0; (0, 0) are (½, ½), of true class 1."""
    one = counting([[math.log(3), 0.0], [0.0, 0.0]], [0, 1])
    total = toys.play(BBSE(kind="soft"), [one]).server
    torch.testing.assert_close(total, torch.tensor([[0.75, 0.5], [0.25, 0.5]]).double())


def test_bbse_of_perfect_predictions_is_diagonal():
    logits = torch.eye(3).repeat(4, 1)[:10]
    total = toys.play(BBSE(), [three(logits)]).server
    assert total.tolist() == torch.diag(torch.tensor([4.0, 3.0, 3.0])).tolist()


def test_bbse_predicts_in_eval_mode_with_the_known_model():
    """Below the known running mean of 10 all four are class 1; the batch's mean or a new model would say 0."""
    model = {**params.of(toys.normed()), "1.running_mean": torch.tensor([10.0])}
    one = toys.client(toys.Fixed([6.0, 6.0, 6.0, 8.0], [0, 1, 1, 0]), toys.normed, known={"model": model})
    assert toys.play(BBSE(), [one]).server.tolist() == [[0.0, 0.0], [2.0, 2.0]]


@pytest.mark.parametrize("kind", ["hard", "soft"])
def test_bbse_exports_its_matrix_and_no_model(kind):
    algorithm = BBSE(kind)
    server = algorithm.init(three(torch.eye(3)).task)
    assert server.shape == (3, 3) and not server.any()
    assert list(algorithm.export(server, None, 0)) == list(algorithm.exports) == ["confusion"]


def test_bbse_agrees_with_golden_vectors():
    arrays = toys.golden("atp/baselines.npz")
    known = {"model": toys.golden_params(toys.golden("atp/inputs.npz"), "w/")}
    data = toys.Fixed(torch.from_numpy(arrays["Xs"]).double(), arrays["Ys"])
    one = toys.client(data, toys.golden_build, classes=10, known=known)
    expected = torch.from_numpy(arrays["bbse_confusion_hard"])
    torch.testing.assert_close(toys.play(BBSE(), [one]).server, expected, **toys.TIGHT)
