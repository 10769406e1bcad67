import json
import math
import pickle
import sys
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import save

from acclimate import trees


class Pair(NamedTuple):
    first: object
    second: object


class Outer:
    class Inner(NamedTuple):
        x: torch.Tensor


def through(nest: object) -> object:
    return trees.load(trees.dump(nest))


@pytest.mark.parametrize(
    "nest",
    [
        None,
        True,
        7,
        -0.5,
        "text with \u00e9 and \u2192",
        [],
        (),
        {},
        {"a": [1, (2.5, None)], "b": {"c": "d"}},
        {3: "int", "3": "string", -1: None},
        torch.tensor(1.5),
        torch.tensor(3),
        torch.empty(0),
        torch.empty(0, 3),
        [torch.empty(0), torch.empty(2, 0), torch.ones(1)],
        torch.tensor([True, False]),
        torch.ones(2, dtype=torch.bfloat16),
        torch.tensor([math.nan, math.inf, -0.0]),
        Pair(torch.ones(2), Pair(None, [torch.zeros(1)])),
        Outer.Inner(torch.ones(1)),
        (Pair(1, 2), [Pair(3, 4)]),
    ],
    ids=repr,
)
def test_dump_and_load_are_inverse(nest):
    back = through(nest)
    assert trees.equal(back, nest)
    assert type(back) is type(nest)


def test_dump_keeps_named_tuples_by_name():
    back = through(Pair(torch.arange(3), 2))
    assert isinstance(back, Pair)
    assert back.first.tolist() == [0, 1, 2] and back.second == 2


def test_dump_keeps_integer_keys_and_their_order():
    back = through({2: "b", 1: "a", "1": "c"})
    assert list(back.items()) == [(2, "b"), (1, "a"), ("1", "c")]


def test_dump_keeps_numbers_that_are_not_finite():
    back = through({"nan": math.nan, "inf": [-math.inf]})
    assert math.isnan(back["nan"]) and back["inf"] == [-math.inf]


def test_dump_separates_tensors_that_share_memory():
    base = torch.arange(6.0)
    nest = {"whole": base, "again": base, "head": base[:3], "tail": base[2:], "turned": base.view(2, 3).T}
    back = through(nest)
    assert trees.equal(back, nest)
    back["whole"].zero_()
    assert back["again"].tolist() == base.tolist() and back["tail"].tolist() == [2.0, 3.0, 4.0, 5.0]


def test_dump_makes_channels_last_tensors_contiguous():
    x = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0)).to(memory_format=torch.channels_last)
    back = through(x)
    assert torch.equal(back, x) and back.is_contiguous() and not x.is_contiguous()


def test_dump_detaches_and_expands():
    back = through([torch.ones(2, requires_grad=True), torch.tensor([5.0]).expand(3)])
    assert not back[0].requires_grad and back[1].tolist() == [5.0, 5.0, 5.0]


@pytest.mark.parametrize("make", [torch.optim.Adam, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9)])
def test_dump_takes_an_optimizer_state(make):
    def stepped(weight: torch.Tensor, optimizer: torch.optim.Optimizer) -> torch.Tensor:
        optimizer.zero_grad()
        (weight**2).sum().backward()
        optimizer.step()
        return weight.detach().clone()

    weight = torch.tensor([1.0, -2.0], requires_grad=True)
    optimizer = make([weight])
    stepped(weight, optimizer)
    other = weight.detach().clone().requires_grad_()
    resumed = make([other])
    saved = optimizer.state_dict()
    assert trees.equal(through(saved), saved)
    resumed.load_state_dict(through(saved))
    assert torch.equal(stepped(other, resumed), stepped(weight, optimizer))


def test_flatten_and_unflatten_are_inverse():
    nest = Pair({"w": torch.ones(2), "step": 3}, [torch.zeros(1), None])
    tensors, skeleton = trees.flatten(nest)
    assert [tensor.tolist() for tensor in tensors] == [[1.0, 1.0], [0.0]]
    back = trees.unflatten(tensors, skeleton)
    assert back.first["w"] is nest.first["w"] and trees.equal(back, nest)


@pytest.mark.parametrize(
    ("nest", "message"),
    [
        ({"a": [1, object()]}, r"nest\['a'\]\[1\] is a object"),
        (({1, 2},), r"nest\[0\] is a set"),
        ({3: np.ones(2)}, r"nest\[3\] is a ndarray"),
        (Pair(1, b"bytes"), r"nest\[1\] is a bytes"),
        ({"a": {(1, 2): 3}}, r"nest\['a'\] has the key \(1, 2\)"),
        ([{None: 1}], r"nest\[0\] has the key None"),
    ],
)
def test_dump_refuses_other_objects_with_their_path(nest, message):
    with pytest.raises(TypeError, match=message):
        trees.dump(nest)


def test_load_never_imports_a_module(tmp_path, monkeypatch):
    (tmp_path / "toy_absent.py").write_text("raise AssertionError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = ModuleType("toy_absent")
    module.Gone = NamedTuple("Gone", [("x", int)])
    module.Gone.__module__ = "toy_absent"
    monkeypatch.setitem(sys.modules, "toy_absent", module)
    blob = trees.dump(module.Gone(1))
    assert trees.load(blob) == (1,)
    monkeypatch.delitem(sys.modules, "toy_absent")
    with pytest.raises(ValueError, match="a Gone of toy_absent, which is not imported here"):
        trees.load(blob)
    assert "toy_absent" not in sys.modules


def test_load_never_wakes_a_lazy_module(monkeypatch):
    module, asked = ModuleType("toy_lazy"), []
    module.__getattr__ = asked.append  # as torch has one, which imports
    monkeypatch.setitem(sys.modules, "toy_lazy", module)
    skeleton = json.dumps({"named": ["toy_lazy", "config.Options"], "items": []})
    with pytest.raises(ValueError, match=r"a config.Options of toy_lazy, which is not imported here"):
        trees.load(save({}, metadata={"nest": skeleton}))
    assert asked == []


@pytest.mark.parametrize(("module", "name"), [("os", "system"), ("builtins", "tuple"), ("math", "pi")])
def test_load_makes_named_tuples_only(module, name):
    skeleton = json.dumps({"named": [module, name], "items": [1]})
    with pytest.raises(ValueError, match=f"a {name} of {module}"):
        trees.load(save({}, metadata={"nest": skeleton}))


def test_load_reads_blobs_with_one_entry_per_tensor():
    named = {"0": torch.arange(3.0), "1": torch.tensor(2)}
    skeleton = json.dumps({"dict": [["w", {"tensor": 0}], ["n", {"tensor": 1}]]})
    back = trees.load(save(named, metadata={"nest": skeleton}))
    assert back["w"].tolist() == [0.0, 1.0, 2.0] and back["n"].item() == 2


def rewritten(blob, change):
    """A blob whose header somebody has changed: `change(header, skeleton, pieces)`."""
    start = 8 + int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8:start])
    skeleton, pieces = json.loads(header["__metadata__"]["packed"])
    skeleton = json.loads(skeleton)
    change(header, skeleton, pieces)
    header["__metadata__"]["packed"] = json.dumps([json.dumps(skeleton), pieces])
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + blob[start:]


@pytest.mark.parametrize("named", [[0, 0], [1, 0], [0, 2], [0, -1], [0, "0"]])
def test_load_takes_every_tensor_once_and_in_order(named):
    """Whoever opens the nest copies what is named: a megabyte named four hundred times would be 400 MB."""

    def again(header, skeleton, pieces):
        skeleton["list"] = [{"tensor": place} for place in named]

    with pytest.raises(ValueError, match="expected every tensor once and in order, found "):
        trees.load(rewritten(trees.dump([torch.ones(2), torch.ones(3)]), again))


def test_load_takes_no_byte_twice():
    """Two types that lie in the same bytes are more than the blob has."""

    def overlap(header, skeleton, pieces):
        header["torch.int32"] = {**header["torch.float32"], "dtype": "I32"}
        skeleton["list"].append({"tensor": 1})
        pieces.append(["torch.int32", 4])

    with pytest.raises(ValueError, match="it is shorter than it says"):
        trees.load(rewritten(trees.dump([torch.ones(4)]), overlap))


@pytest.mark.parametrize("keep", [0, 4, 8, 40, -1])
def test_load_of_a_truncated_blob_is_an_error(keep):
    blob = trees.dump({"w": torch.ones(4), "n": 1})
    with pytest.raises(ValueError, match="not a nest written by acclimate, or damaged"):
        trees.load(blob[:keep])


@pytest.mark.parametrize(
    "blob",
    [b"\xff" * 64, b"PK\x03\x04 something else entirely", save({"w": torch.ones(1)})],
    ids=["ones", "zip", "other"],
)
def test_load_of_something_else_is_an_error(blob):
    with pytest.raises(ValueError, match="not a nest written by acclimate, or damaged"):
        trees.load(blob)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (torch.tensor(0.0), torch.tensor(-0.0)),
        (torch.ones(2), torch.ones(1, 2)),
        (torch.ones(2), torch.ones(2).double()),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
        ([1], (1,)),
        (1, 1.0),
        ({"a": 1}, {"b": 1}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ([torch.ones(1)], [torch.ones(1), torch.ones(1)]),
        (Pair(1, 2), (1, 2)),
    ],
)
def test_equal_tells_nests_apart(a, b):
    assert not trees.equal(a, b)
    assert trees.equal(a, a) and trees.equal(b, b)


@pytest.mark.parametrize(
    ("nest", "why"),
    [
        ({"w": b"bytes"}, "it['w'] is a bytes; states and messages may hold"),
        ({None: torch.ones(2)}, "it has the key None; keys are strings or whole numbers"),
    ],
)
def test_form_says_what_is_wrong_with_something_that_is_no_nest(nest, why):
    assert trees.Form({"w": torch.ones(2)}).misfit(nest).startswith(why)


def test_equal_compares_bits():
    assert trees.equal(torch.tensor([math.nan]), torch.tensor([math.nan]))
    assert trees.equal(torch.arange(6).view(2, 3).T, torch.tensor([[0, 3], [1, 4], [2, 5]]))


def test_nbytes_counts_tensors_only():
    """Three float32, two float64 and one byte: 12 + 16 + 1."""
    assert trees.nbytes({"a": torch.ones(3), "b": [torch.ones(2).double()], "c": torch.tensor(True), "d": "x"}) == 29


@pytest.mark.parametrize(("value", "expected"), [(1.0, True), (math.nan, False), (math.inf, False)])
def test_finite_looks_into_every_tensor(value, expected):
    assert trees.finite([torch.tensor([1, 2]), {"w": torch.tensor([0.0, value])}]) is expected


def test_finite_is_not_misled_by_a_sum_that_overflows():
    assert trees.finite(torch.full((4,), 3e38))


def test_transform_changes_tensors_and_nothing_else():
    doubled = trees.transform(lambda t: t * 2, Pair(torch.ones(1), {"n": 5}))
    assert trees.equal(doubled, Pair(torch.tensor([2.0]), {"n": 5}))


def test_leaves_come_in_order():
    nest = {"b": torch.tensor(1), "a": (torch.tensor(2), [torch.tensor(3)])}
    assert [int(tensor) for tensor in trees.leaves(nest)] == [1, 2, 3]


def test_load_of_any_flipped_byte_of_the_skeleton_is_a_value_error_or_a_nest():
    blob = trees.dump({"a": torch.ones(2), "b": (1, [None, "x"])})
    outcomes = set()
    for place in range(8, len(blob) - 8):
        damaged = blob[:place] + bytes([blob[place] ^ 1]) + blob[place + 1 :]
        try:
            trees.load(damaged)
            outcomes.add("nest")
        except ValueError:
            outcomes.add("error")
    assert "error" in outcomes


@pytest.mark.parametrize("make", [trees.Parcel, lambda nest: trees.Parcel(trees.dump(nest))], ids=["nest", "blob"])
def test_parcel_opens_to_tensors_of_ones_own(make):
    nest = Pair(torch.arange(6.0).view(2, 3).T, {"n": 5})
    parcel = make(nest)
    first = parcel.open()
    assert trees.equal(first, nest)
    assert first.first.is_contiguous()
    first.first.zero_()
    assert trees.equal(parcel.open(), nest)
    assert parcel.seal() == trees.dump(nest)
    assert parcel == trees.Parcel(nest) != trees.Parcel(None)


def test_parcel_is_sealed_once_for_all_processes():
    parcel = trees.Parcel({"w": torch.ones(2)})
    sent = pickle.loads(pickle.dumps([parcel, parcel]))
    assert trees.equal(sent[1].open(), {"w": torch.ones(2)})
    assert pickle.dumps(parcel).count(parcel.seal()) == 1
    assert parcel.seal() is parcel.seal()


def test_a_single_number_out_of_a_larger_tensor_is_saved():
    column = torch.arange(6.0).view(1, 3, 2)[:, 1, 1:]
    odd = torch.arange(4.0)[1::2][:1]  # one number with stride 2, which counts as contiguous
    assert odd.is_contiguous()
    assert odd.stride() == (2,)
    assert trees.load(trees.dump([odd, column])) == [torch.tensor([1.0]), torch.tensor([[3.0]])]
