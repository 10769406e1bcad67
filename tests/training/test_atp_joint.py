import math

import pytest
import torch

import battery
import toys
from acclimate import trees
from acclimate.calibration.atp import ATP
from acclimate.engine.known import Known
from acclimate.sgd import LocalSGD
from acclimate.training.atp_joint import ATPJoint, Joint
from acclimate.training.fedavg import FedAvg, Global


def one_image():
    """One client with one pixel x = 1 of class 0, in training and in validation."""
    return toys.client(toys.Fixed([1.0], [0]), toys.two_layers)


def sent(head: float) -> Joint:
    w = {"1.weight": torch.ones(1, 1), "2.weight": torch.tensor([[head], [0.0]])}
    return Joint(w, {name: torch.zeros(()) for name in w}, 0)


def test_a_round_is_a_step_of_the_model_then_one_of_the_rates():
    """Logits (1, 0), p = σ(1). Head: ∇ = −(1 − p), +(1 − p), so SGD at rate 1 adds (1 − p) to the first weight.

    Rates, at the model as sent: for the head's two weights h = ±p (1 − p), ⟨h, ∇CE⟩ = −2 p (1 − p)², numel 2, so
    α = 0.1 · 2 p (1 − p)² / √2.
    """
    reply, _ = ATPJoint(LocalSGD(lr=1.0)).client_update(sent(1.0), None, one_image())
    w, alpha = reply.update
    p = 1 / (1 + math.exp(-1))
    assert w["2.weight"][0, 0].item() == pytest.approx(1 + (1 - p), abs=1e-6)
    assert alpha["2.weight"].item() == pytest.approx(0.1 * 2 * p * (1 - p) ** 2 / math.sqrt(2), abs=1e-6)


def test_its_two_halves_are_fedavg_and_atp():
    client, server, local = one_image(), sent(0.3), LocalSGD(lr=0.5)
    w, alpha = ATPJoint(local).client_update(server, None, client)[0].update
    averaged = FedAvg(local).client_update(Global(server.w, 0), None, client)[0].update
    rates = ATP().client_update(
        server.rates, None, toys.client(client.train, toys.two_layers, known={"model": server.w})
    )
    assert trees.equal(w, averaged) and trees.equal(alpha, rates[0].update)


def test_rates_may_be_learnt_at_the_trained_model():
    client, server, local = one_image(), sent(0.3), LocalSGD(lr=0.5)
    w, alpha = ATPJoint(local, on="trained").client_update(server, None, client)[0].update
    known = {"model": w}
    rates = ATP().client_update(server.rates, None, toys.client(client.train, toys.two_layers, known=known))
    assert trees.equal(alpha, rates[0].update)


@pytest.mark.parametrize("on", ["sent", "trained"])
def test_its_model_is_fedavgs_bit_for_bit_and_its_rates_have_moved(on):
    """So the two are compared by their rates alone."""
    outcome = battery.run_algorithm(ATPJoint(on=on), rounds=2, cohort=3, seed=5)
    known = Known([outcome]).of(None)
    assert trees.equal(known["model"], battery.trained().of(None)["model"])
    assert any(rate != 0 for rate in known["rates"].values())
