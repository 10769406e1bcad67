from dataclasses import replace
from functools import partial

import pytest
import torch

import fedtta_golden
import toys
from acclimate.contracts import Newcomer
from acclimate.engine.live import Extending, Live
from acclimate.models.build import Build
from acclimate.models.extended import plain
from acclimate.models.mlp import MLP
from acclimate.sgd import LocalSGD
from acclimate.training.fedavg import Global
from acclimate.training.fedmd import Consensus
from acclimate.training.fedtta import FedTTA
from acclimate.training.hetero_fedtta import HeteroFedTTA

LOOP = {"lr": 0.1, "weight_decay": 1e-4, "clip": 10.0, "decay": 0.99, "decay_every": 10}


class Public:
    """Stands in for `Unlabelled`: any floats as images."""

    def __init__(self, x):
        self.x = x

    def __len__(self):
        return len(self.x)

    def batches(self, size):
        return iter(self.x.split(size))


def golden(weight):
    """Algorithm, client and consensus of the golden vectors."""
    arrays, inputs = toys.golden("fedtta/hetero.npz"), toys.golden("fedtta/inputs.npz")
    local = LocalSGD(**LOOP, batch_size=32, steps=1)
    algorithm = HeteroFedTTA(local, public_batch=20, inner_lr=0.3, adapt_lr=0.01, weight=weight)
    x, y = torch.from_numpy(inputs["X_train"][:32]).double(), torch.from_numpy(inputs["Y_train"][:32])
    build = Extending(fedtta_golden.build, (algorithm,))
    one = toys.client(toys.Fixed(x, y), build, classes=10)
    public = Public(torch.from_numpy(arrays["hetero/X_public"]).double())
    one = replace(one, task=replace(one.task, public=public))
    logits = {kind: torch.from_numpy(arrays[f"hetero/{kind}_logits"]).double() for kind in ("base", "personal")}
    return algorithm, one, Consensus(logits, 0), fedtta_golden.whole(inputs)


@pytest.mark.parametrize("weight", [0.0, 0.8])
def test_hetero_fedtta_digests_and_revisits_as_the_golden_vectors(weight):
    algorithm, one, server, w = golden(weight)
    after = algorithm.client_update(server, w, one)[1]
    expected = fedtta_golden.whole(toys.golden("fedtta/hetero.npz"), f"hetero/digest_revisit_lambda{weight}/")
    assert expected
    for name, tensor in expected.items():
        torch.testing.assert_close(after[name], tensor, **toys.TIGHT)


def test_hetero_fedtta_welcomes_as_the_golden_vectors():
    algorithm, one, server, w = golden(0.0)
    task = replace(one.task, build=lambda id: one.net(w))
    after = algorithm.welcome(server, Newcomer(3, one.train.x, task, one.net))
    expected = fedtta_golden.whole(toys.golden("fedtta/hetero.npz"), "hetero/digest_only_newclient_lambda0.0/")
    assert expected
    for name, tensor in expected.items():
        torch.testing.assert_close(after[name], tensor, **toys.TIGHT)


def test_hetero_fedtta_answers_as_the_golden_vectors():
    algorithm, one, _, w = golden(0.8)
    arrays = toys.golden("fedtta/hetero.npz")
    found = algorithm.answers(one.net(w).eval(), one.task.public, 0)
    toys.assert_same(found["base"], arrays["hetero/base_on_public_logits"])
    toys.assert_same(found["personal"], arrays["hetero/finetuned_on_public_logits"])


BUILD = Build(MLP, 3, (1, 8, 8), (0.5,), (0.25,), variants=({"hidden": (4,)}, {"hidden": (6,)}, {"hidden": (8, 8)}))
SMALL = HeteroFedTTA(LocalSGD(lr=0.1, batch_size=8, steps=2))


def people(algorithm=SMALL, number=3):
    build = Extending(BUILD, (algorithm,))
    public, live = Public(toys.examples(10, seed=9).x), Live(build)
    made = [toys.client(toys.examples(23, seed=k), build, id=k, classes=3) for k in range(number)]
    return [replace(one, task=replace(one.task, public=public), net=partial(live, client=one.id)) for one in made]


def test_hetero_fedtta_serves_models_of_three_sizes_and_welcomes_any():
    played = toys.play(SMALL, people())
    again = toys.play(SMALL, people(), played.server, played.states)
    assert {kind: logits.shape for kind, logits in again.server.logits.items()} == {
        "base": (10, 3),
        "personal": (10, 3),
    }
    sizes = [sum(t.numel() for t in plain(state).values()) for state in again.states.values()]
    assert len(set(sizes)) == 3
    for one in people():
        torch.manual_seed(one.id)
        fresh = one.task.build(one.id).state_dict()
        torch.manual_seed(one.id)
        w = SMALL.welcome(again.server, Newcomer(one.id, one.train.x, one.task, one.net))
        exported = SMALL.export(again.server, w, one.id)
        assert set(exported) == {"model", "loss_net", "inner_step"}
        assert any(not torch.equal(w[name], fresh[name]) for name in w)


def test_hetero_fedtta_in_its_first_round_trains_as_fedtta_alone():
    one = people()[0]
    start = one.start()
    alone, _ = FedTTA(SMALL.local, adapt_lr=0.005).client_update(Global(start, 0), None, people()[0])
    after = SMALL.client_update(Consensus({}, 0), start, people()[0])[1]
    assert all(torch.equal(after[name], tensor) for name, tensor in alone.update.items())
