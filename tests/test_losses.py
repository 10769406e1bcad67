import math

import pytest
import torch

from acclimate.losses import entropy


def test_entropy_is_in_nats_row_by_row():
    """p = (¾, ¼): −¾ ln ¾ − ¼ ln ¼ = ln 4 − ¾ ln 3. Uniform over two: ln 2."""
    found = entropy(torch.tensor([[math.log(3), 0.0], [5.0, 5.0]]))
    assert found.tolist() == pytest.approx([math.log(4) - 0.75 * math.log(3), math.log(2)], abs=1e-6)


def test_entropy_of_certainty_is_zero_and_finite():
    logits = torch.tensor([[1000.0, -1000.0]], requires_grad=True)
    value = entropy(logits)
    value.sum().backward()
    assert value.item() == 0.0
    assert logits.grad.isfinite().all()
