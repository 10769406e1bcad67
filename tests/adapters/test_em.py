import pytest
import torch
from torch import nn

import toys
from acclimate.adapters.em import EM


def batch(p: list[list[float]]) -> torch.Tensor:
    """Images that are log-probabilities, for a net that only flattens them."""
    return torch.tensor(p).log().view(len(p), -1, 1, 1)


def test_em_reweighs_by_the_mean_posterior_twice():
    """p₀ = 4/5 and 3/5: prior 7/10; posteriors 28/31 (from 4·7 : 1·3) and 7/9 (from 3·7 : 2·3).

    Second prior q = (28/31 + 7/9) / 2; posteriors 4q / (4q + 1 − q) and 3q / (3q + 2 (1 − q)).
    """
    adapter = EM(nn.Flatten())
    posterior = adapter(batch([[0.8, 0.2], [0.6, 0.4]])).exp()
    q = (28 / 31 + 7 / 9) / 2
    expected = [4 * q / (1 + 3 * q), 3 * q / (2 + q)]
    assert posterior[:, 0].tolist() == pytest.approx(expected, abs=1e-6)
    assert adapter.shared()["prior"].tolist() == pytest.approx([q, 1 - q], abs=1e-6)


def test_em_with_one_iteration_stops_earlier():
    posterior = EM(nn.Flatten(), iterations=1)(batch([[0.8, 0.2], [0.6, 0.4]])).exp()
    assert posterior[:, 0].tolist() == pytest.approx([28 / 31, 7 / 9], abs=1e-6)


def test_em_leaves_uniform_predictions():
    adapter = EM(nn.Flatten(), iterations=5)
    logits = adapter(batch([[0.25] * 4] * 3))
    torch.testing.assert_close(logits.exp(), torch.full((3, 4), 0.25))


def test_em_leaves_predictions_whose_mean_is_uniform():
    p = [[0.9, 0.1], [0.1, 0.9]]
    torch.testing.assert_close(EM(nn.Flatten())(batch(p)).exp(), torch.tensor(p))


def test_em_takes_each_batch_on_its_own():
    adapter, x = EM(nn.Flatten()), batch([[0.8, 0.2], [0.6, 0.4]])
    first = adapter(x)
    adapter(batch([[0.1, 0.9]]))
    assert torch.equal(adapter(x), first)


def test_em_predicts_with_the_prior_it_was_given():
    """Prior (¼, ¾) on p = (¾, ¼): both classes alike. Without a prior p stays."""
    adapter, x = EM(nn.Flatten()), batch([[0.75, 0.25]])
    torch.testing.assert_close(adapter.predict(x).exp(), torch.tensor([[0.75, 0.25]]))
    adapter.load_shared({"prior": torch.tensor([0.25, 0.75])})
    torch.testing.assert_close(adapter.predict(x).exp(), torch.tensor([[0.5, 0.5]]))
    torch.testing.assert_close(adapter.shared()["prior"], torch.tensor([0.25, 0.75]))


def test_em_rules_no_class_out_by_underflow():
    x = torch.tensor([[200.0, 0.0], [200.0, 0.0]]).view(2, 2, 1, 1)
    assert EM(nn.Flatten(), iterations=5)(x).isfinite().all()


def test_em_agrees_with_golden_vectors():
    adapter = EM(toys.golden_net(), iterations=2)
    logits = torch.stack([adapter(x) for x in toys.golden_batches()])
    torch.testing.assert_close(logits, toys.golden_logits("em_2"), **toys.TIGHT)
