import torch

import battery
import toys
from acclimate import params, trees
from acclimate.engine.known import Known
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import FedAvg
from acclimate.training.finetune import FineTune

KNOWN = {"model": {"1.weight": torch.full((1, 1), 2.0), "2.weight": torch.zeros(2, 1)}}
ONE = toys.Fixed([1.0], [0])


def test_finetune_of_the_head_by_hand():
    """Body 2, head 0, x = 1 of class 0: features 2, p = (½, ½), the head's gradient is (−½ · 2, ½ · 2); lr 0.1."""
    played = toys.play(FineTune(LocalSGD(lr=0.1), part="head"), [toys.client(ONE, toys.two_layers, known=KNOWN)])
    torch.testing.assert_close(played.states[0]["2.weight"], torch.tensor([[0.1], [-0.1]]))
    torch.testing.assert_close(played.states[0]["1.weight"], torch.tensor([[2.0]]))


def test_finetune_of_the_head_leaves_statistics_alone():
    known = {"model": params.of(toys.normed())}
    data = toys.Fixed([4.0, 6.0], [0, 1])
    for part, moved in (("head", False), ("all", True)):
        own = toys.play(FineTune(part=part), [toys.client(data, toys.normed, known=known)]).states[0]
        assert (own["1.running_mean"] != 0).item() == moved


def test_finetune_of_everything_is_what_a_client_does_in_fedavg():
    client = toys.client(ONE, toys.two_layers, known=KNOWN)
    ours = toys.play(FineTune(LocalSGD(lr=0.1)), [client])
    theirs = toys.play(FedAvg(LocalSGD(lr=0.1)), [client])
    assert trees.equal(ours.states[0], theirs.replies[0].update)


def test_finetune_leaves_those_who_never_took_part_with_the_model_before():
    trained = battery.trained()
    tuned = battery.run_algorithm(FineTune(), cohort=2, seed=5, position=1, known=trained)
    known = Known([*trained.outcomes, tuned])
    same = [trees.equal(known.of(id)["model"], trained.of(None)["model"]) for id in battery.population().source]
    assert sorted(same) == [False, False, True, True]
    assert known.lacks(next(id for id, s in enumerate(same) if s), ["model"]) == []
