import torch

import toys
from acclimate.simplex import to_simplex


def test_to_simplex_moves_all_positive_entries_alike():
    """(1, 1, −3): two entries stay, (1 + 1 − 1) / 2 = ½ is taken from each. Points of the simplex stay."""
    assert to_simplex(torch.tensor([1.0, 1.0, -3.0])).tolist() == [0.5, 0.5, 0.0]
    assert to_simplex(torch.tensor([0.25, 0.75])).tolist() == [0.25, 0.75]


def test_to_simplex_agrees_with_golden_vectors():
    arrays = toys.golden("atp/baselines.npz")
    projected = to_simplex(torch.from_numpy(arrays["simplex_in"]))
    torch.testing.assert_close(projected, torch.from_numpy(arrays["simplex_out"]), **toys.TIGHT)


def test_to_simplex_takes_rows():
    rows = torch.tensor([[0.9, 0.5, -1.0], [1.0, 1.0, -3.0]])
    torch.testing.assert_close(to_simplex(rows), torch.tensor([[0.7, 0.3, 0.0], [0.5, 0.5, 0.0]]))
