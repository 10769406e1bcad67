import torch

import toys
from acclimate.aggregators.mixing import mix, products
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
