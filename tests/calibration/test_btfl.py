import math

import numpy as np
import pytest
import torch
from torch import nn

import toys
from acclimate import params
from acclimate.calibration.btfl import BTFL
from acclimate.errors import MissingKnowledge


def linear(weight):
    """A recipe of a classifier whose features are the images themselves."""

    def build(id=None):
        net = nn.Sequential(nn.Flatten(), nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype))
        return params.load(net, {"1.weight": weight})

    return build


def client(z, id=0, w_g=None, w_p=None):
    """A client with these features; heads of zeros are unsure of everything."""
    z = torch.as_tensor(z, dtype=torch.float64)
    w_g = torch.zeros(2, z.shape[1], dtype=torch.float64) if w_g is None else w_g
    w_p = torch.zeros_like(w_g) if w_p is None else w_p
    data = toys.Fixed(z.view(*z.shape, 1, 1), torch.zeros(len(z), dtype=torch.long))
    return toys.client(data, linear(w_g), id=id, known={"model": {"1.weight": w_g}, "head": w_p})


def test_btfl_estimator_by_hand():
    """Features 0, 0.5, 0.6 and 3: tanh 0.5 = 0.46 is rounded down, tanh 0.6 = 0.54 up. Two of four: (2 + 1) / (4 + 2).
    The second is always on: (0 + 1) / 6. Heads of zeros have entropy ln 2.
    """
    one = client([[0.0, 9.0], [0.5, 9.0], [0.6, 9.0], [3.0, 9.0]])
    own = toys.play(BTFL(), [one]).states[0]
    torch.testing.assert_close(own.p, torch.tensor([1 / 2, 1 / 6]).double())
    torch.testing.assert_close(own.entropies, torch.full((2,), math.log(2)).double())


def test_btfl_estimators_equal_the_golden_vectors():
    g = toys.golden("btfl/btfl_golden.npz")
    one = client(g["z_train_local"], w_g=torch.from_numpy(g["W_g"]), w_p=torch.from_numpy(g["W_p"]))
    for smoothing, name in ((1.0, "dle_local_laplace"), (0.0, "freq_local")):
        own = toys.play(BTFL(smoothing=smoothing), [one]).states[0]
        toys.assert_same(own.p, g[name][0])
    toys.assert_same(own.entropies, np.array([g["Hbar_l"], g["Hbar_g"]]))


@pytest.mark.parametrize(("others", "name"), [(True, "dle_global_excl"), (False, "dle_global_incl")])
def test_btfl_global_estimator_equals_the_golden_vectors(others, name):
    g, algorithm = toys.golden("btfl/btfl_golden.npz"), BTFL(others=others)
    p = torch.from_numpy(g["dle_clients"][:, 0])
    played = toys.play(algorithm, [client([[0.0] * 32], id=k) for k in range(5)])
    server = played.server._replace(p=p.sum(0))
    own = played.states[0]._replace(p=p[0])
    toys.assert_same(algorithm.export(server, own, 0)["densities"]["global"], g[name][0])


def test_btfl_global_estimator_is_the_mean_of_the_others():
    """Three clients with one feature, on in none, half and all of two images: (1/4, 1/2, 3/4) are 1 − p."""
    algorithm = BTFL()
    clients = [client([[0.0], [0.0]], 0), client([[0.0], [2.0]], 1), client([[2.0], [2.0]], 2)]
    played = toys.play(algorithm, clients)
    given = [algorithm.export(played.server, played.states[k], k)["densities"] for k in range(3)]
    torch.testing.assert_close(torch.cat([d["local"] for d in given]), torch.tensor([0.75, 0.5, 0.25]).double())
    torch.testing.assert_close(torch.cat([d["global"] for d in given]), torch.tensor([0.375, 0.5, 0.625]).double())
    everybody = BTFL(others=False).export(played.server, played.states[0], 0)["densities"]["global"]
    torch.testing.assert_close(everybody, torch.tensor([0.5]).double())


def test_btfl_client_counts_once_however_often_it_is_asked():
    algorithm, clients = BTFL(), [client([[0.0]], 0), client([[2.0]], 1)]
    once = toys.play(algorithm, clients)
    twice = toys.play(algorithm, clients, once.server, once.states)
    assert twice.server.clients == 2
    torch.testing.assert_close(twice.server.p, once.server.p)


def test_btfl_of_one_client_knows_nothing_else():
    algorithm = BTFL()
    played = toys.play(algorithm, [client([[0.0], [2.0]])])
    given = algorithm.export(played.server, played.states[0], 0)["densities"]
    torch.testing.assert_close(given["global"], given["local"])
    assert algorithm.export(played.server, None, 7) == {}


def test_btfl_without_personal_heads_says_what_to_do():
    one = toys.client(toys.Fixed([0.0], [0]), toys.logistic, known={"model": params.of(toys.logistic())})
    with pytest.raises(MissingKnowledge, match="train with the phase 'btfl'"):
        toys.play(BTFL(), [one])
