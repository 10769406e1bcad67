import pytest
import torch
from torch import nn

from acclimate import params
from acclimate.adapters.smooth import Smooth


def doubling() -> nn.Module:
    """Logits are twice the input."""
    return params.load(nn.Sequential(nn.Linear(2, 2, bias=False)), {"0.weight": 2 * torch.eye(2)})


def test_smooth_subtracts_the_running_mean():
    """Logits (2, 0) and (6, 4), mean (4, 2); with β = ½ the running mean is (2, 1), so (0, −1) and (4, 3) are left."""
    logits = Smooth(doubling(), momentum=0.5)(torch.tensor([[1.0, 0.0], [3.0, 2.0]]))
    assert logits.flatten().tolist() == pytest.approx([0.0, -1.0, 4.0, 3.0])


def test_smooth_before_the_first_batch_predicts_as_the_model():
    x = torch.tensor([[1.0, 5.0]])
    assert torch.equal(Smooth(doubling()).predict(x), doubling()(x))
