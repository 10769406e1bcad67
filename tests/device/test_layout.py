"""Channels last where a model can have it, and no difference but rounding."""

import pytest
import torch
from torch import nn

import acclimate as ac

LAST, FIRST = torch.channels_last, torch.contiguous_format


class Net(nn.Module):
    """Convolutions, and a flattening that some layouts cannot have."""

    def __init__(self, views):
        super().__init__()
        self.views = views
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8 * 36, 4)

    def forward(self, x):
        z = self.norm(self.conv(x)).relu()
        return self.head(z.view(len(z), -1) if self.views else z.flatten(1))


def net(views):
    torch.manual_seed(0)
    return Net(views)


def batch(seed=0):
    return torch.rand(12, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", ["none", "tent", "bn-adapt", "t3a", "shot"])
def test_both_layouts_answer_the_same(name):
    last, first = (ac.wrap(net(views), name) for views in (False, True))
    for seed in range(3):
        torch.testing.assert_close(last(batch(seed)), first(batch(seed)), rtol=1e-4, atol=1e-5)
    assert last.adapter.net.conv.weight.is_contiguous(memory_format=LAST)
    assert first.adapter.net.conv.weight.is_contiguous(memory_format=FIRST)


def test_trying_a_layout_teaches_nothing():
    wrapped = ac.wrap(net(False), "bn-adapt")
    before = {name: tensor.clone() for name, tensor in wrapped.adapter.net.named_buffers()}
    torch.manual_seed(1)
    drawn = torch.rand(3)
    torch.manual_seed(1)
    wrapped._layout.suit(wrapped.adapter, batch())
    assert torch.equal(torch.rand(3), drawn)
    assert all(torch.equal(tensor, before[name]) for name, tensor in wrapped.adapter.net.named_buffers())


def test_the_users_model_keeps_its_layout():
    model = net(False)
    ac.wrap(model, "tent")(batch())
    assert model.conv.weight.is_contiguous(memory_format=FIRST)


def test_a_model_without_convolutions_stays_as_it_is():
    wrapped = ac.wrap(nn.Sequential(nn.Linear(5, 3)), "em")
    assert wrapped(torch.rand(4, 5)).shape == (4, 3)
    assert not wrapped._layout._untried


def test_a_model_with_group_norms_keeps_its_layout_since_torch_would_crash():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(4 * 36, 4))
    wrapped = ac.wrap(model, "tent")
    wrapped(batch())
    assert wrapped.adapter.net[0].weight.is_contiguous(memory_format=FIRST)
