import pytest
import torch
from torch import nn

from acclimate import params, trees


def named(**values: float) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(value) for name, value in values.items()}


def test_of_copies_parameters_and_buffers():
    net = nn.BatchNorm1d(2)
    values = params.of(net)
    assert list(values) == ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    values["weight"].zero_()
    assert net.weight.tolist() == [1.0, 1.0] and not values["weight"].requires_grad


def test_of_is_contiguous_whatever_the_layout():
    net = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    assert not net.weight.is_contiguous()
    copy = params.of(net)["weight"]
    assert copy.is_contiguous() and torch.equal(copy, net.weight)


def test_load_copies_in_place_and_keeps_the_tensors():
    net = nn.Linear(2, 1)
    weight, values = net.weight, {"weight": torch.tensor([[1.0, 2.0]]), "bias": torch.tensor([3.0])}
    assert params.load(net, values) is net
    assert net.weight is weight and weight.requires_grad
    assert trees.equal(params.of(net), values)
    values["bias"].zero_()
    assert net.bias.item() == 3.0


def test_load_names_what_does_not_fit():
    with pytest.raises(ValueError, match=r"do not fit Linear: missing \['bias'\], unknown \['extra'\]"):
        params.load(nn.Linear(1, 1), {"weight": torch.ones(1, 1), "extra": torch.ones(1)})


def test_assign_writes_into_the_targets():
    targets, values = named(a=1.0, b=2.0), named(a=5.0, b=6.0, other=7.0)
    kept = targets["a"]
    params.assign(targets, values)
    assert trees.equal(targets, named(a=5.0, b=6.0))
    assert targets["a"] is kept


def test_select_keeps_names_in_order():
    assert list(params.select(named(c=1.0, a=2.0, b=3.0), {"a", "c"}.__contains__)) == ["c", "a"]


def test_arithmetic_is_name_by_name():
    """a = (1, 2), b = (3, 5): a + 2 b = (7, 12), a − b = (−2, −3), ⟨a, b⟩ = 3 + 10."""
    a, b = named(x=1.0, y=2.0), named(y=5.0, x=3.0)
    assert trees.equal(params.add(a, b, 2.0), named(x=7.0, y=12.0))
    assert trees.equal(params.sub(a, b), named(x=-2.0, y=-3.0))
    assert params.dot(a, b).item() == 13.0
    assert trees.equal(params.zeros_like(a), named(x=0.0, y=0.0))
    assert trees.equal(a, named(x=1.0, y=2.0))


@pytest.mark.parametrize(("value", "expected"), [(2.6, 3), (2.4, 2), (-2.6, -3)])
def test_cast_rounds_to_whole_numbers(value, expected):
    assert params.cast(torch.tensor(value).double(), torch.int64).item() == expected


def test_load_refuses_a_tensor_that_would_be_stretched():
    net = torch.nn.Linear(3, 2)
    with pytest.raises(ValueError, match=r"'bias' has shape \[2\]; found \[1\]"):
        params.load(net, {"weight": torch.zeros(2, 3), "bias": torch.zeros(1)})
