import torch

import toys
from acclimate import trees
from acclimate.aggregators.mixing import PIECE, combine, mean, mix, products
from acclimate.params import Params


def people(seed: int) -> list[Params]:
    g = torch.Generator().manual_seed(seed)
    return [{"w": torch.randn(3, 2, generator=g), "b": torch.randn((), generator=g)} for _ in range(4)]


def test_products_by_hand():
    """Seen from 1, (3, 5) and (1, 2) are (2, 4) and (0, 1); what the origin lacks counts as it is."""
    uploads = [
        toys.upload({"w": torch.tensor([3.0, 5.0]), "b": torch.tensor(2.0)}),
        toys.upload({"w": torch.tensor([1.0, 2.0]), "b": torch.tensor(-1.0)}),
    ]
    found = products(uploads, {"w": torch.ones(2)})
    assert found.tolist() == [[4.0 + 16.0 + 4.0, 4.0 - 2.0], [4.0 - 2.0, 1.0 + 1.0]]


def test_products_do_not_change_the_uploads():
    values = [{"w": value["w"].double()} for value in people(0)]
    before = [value["w"].clone() for value in values]
    products([toys.upload(value) for value in values], values[0])
    assert all(torch.equal(value["w"], old) for value, old in zip(values, before, strict=True))


def test_equal_rows_are_mixed_once_and_as_one_of_different_rows():
    uploads = [toys.upload(value) for value in people(1)]
    row = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    same = mix(row.expand(4, -1), uploads)
    assert all(download is same[0] for download in same)
    different = mix(torch.stack([row, row.flip(0), row, row]), uploads)
    for name in ("w", "b"):
        torch.testing.assert_close(same[0][name], different[0][name])
        assert not torch.allclose(different[1][name], different[0][name])


def test_large_tensors_are_mixed_piece_by_piece():
    """Two pieces and three numbers more: as in one go, for one row of weights and for several."""
    torch.manual_seed(0)
    tensors = [torch.randn(2 * PIECE + 3, 1) for _ in range(4)]
    w = torch.rand(3, 4).softmax(1)
    at_once = torch.tensordot(w.double(), torch.stack(tensors).double(), dims=1).float()
    torch.testing.assert_close(combine(w, tensors), at_once, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(combine(w[1], tensors), at_once[1], rtol=1e-6, atol=1e-7)
    seen = torch.stack(tensors).double().flatten(1) - 1
    found = products([toys.upload({"w": tensor}) for tensor in tensors], {"w": torch.ones(2 * PIECE + 3, 1)})
    torch.testing.assert_close(found, seen @ seen.T)


def test_combine_rounds_whole_numbers_and_keeps_single_ones():
    counts = [torch.tensor(1), torch.tensor(2)]
    assert torch.equal(combine(torch.tensor([0.25, 0.75]), counts), torch.tensor(2))
    assert combine(torch.eye(2), counts).tolist() == [1, 2]


def test_mean_weighs_and_rounds_integers():
    """(2 · 1 + 1 · 4) / 3 = 2; counters (2 · 1 + 1 · 3) / 3 = 1.67 are rounded, not cut."""
    many = [{"w": torch.tensor(1.0), "n": torch.tensor(1)}, {"w": torch.tensor(4.0), "n": torch.tensor(3)}]
    assert trees.equal(mean(many, [2, 1]), {"w": torch.tensor(2.0), "n": torch.tensor(2)})


def test_mean_of_equal_models_is_that_model_to_the_bit():
    model = {"w": torch.randn(50, generator=torch.Generator().manual_seed(0))}
    assert trees.equal(mean([model] * 7, [0.1, 3, 5, 7, 11, 13, 17]), model)


def test_combine_keeps_the_type():
    tensors = [torch.tensor([1.0]).half(), torch.tensor([3.0]).half()]
    mixed = combine(torch.tensor([0.25, 0.75]), tensors)
    assert mixed.dtype == torch.float16 and mixed.item() == 2.5
