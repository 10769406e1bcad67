"""Nests: tensors, numbers, strings and None in dicts, lists, tuples and NamedTuples.

All states and messages are nests, so saving, counting bytes and sending to another process are written once,
here. The saved form is one safetensors blob: the tensors of a type end to end, and the skeleton around them as
JSON in its header. Nothing is pickled; loading a NamedTuple looks its class up among the modules that are already
imported and never imports or runs anything.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from inspect import getattr_static
from itertools import count
from pickle import PickleBuffer
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load as load_tensors
from torch import Tensor

from acclimate.params import copy

Nest = Any  # a recursive union would be exact, and unreadable at every place of use
Skeleton = Any  # a nest with numbers in place of its tensors
Blob = bytes | memoryview  # a view of memory that processes share

APART = 2**18  # bytes of a blob that is worth a memory of its own on its way

_PACKED, _APART = "packed", "nest"  # one entry of metadata: several would come in any order
_TYPES = {  # by torch's name: the format's name
    str(dtype): (name, dtype)
    for name, dtype in {
        "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
        "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
        "U16": torch.uint16, "U32": torch.uint32, "U64": torch.uint64, "C64": torch.complex64,
        "F8_E4M3": torch.float8_e4m3fn, "F8_E5M2": torch.float8_e5m2,
    }.items()
}  # fmt: skip


def flatten(nest: Nest) -> tuple[list[Tensor], Skeleton]:
    """The tensors of a nest in order, and everything else as plain lists and dicts that JSON can hold.

    >>> tensors, skeleton = flatten({"w": torch.ones(2), "step": 3})
    >>> len(tensors), skeleton
    (1, {'dict': [['w', {'tensor': 0}], ['step', 3]]})
    """
    tensors: list[Tensor] = []
    try:
        return tensors, _skeleton(nest, tensors)
    except TypeError:
        raise TypeError(_complaint(nest, "nest")) from None


def unflatten(tensors: list[Tensor], skeleton: Skeleton) -> Nest:
    """The inverse of `flatten`: every tensor has one place, in order."""
    return _rebuild(skeleton, enumerate(tensors))


def leaves(nest: Nest) -> Iterator[Tensor]:
    """The tensors of a nest, in order."""
    yield from flatten(nest)[0]


def transform(change: Callable[[Tensor], Tensor], nest: Nest) -> Nest:
    """The same nest with every tensor changed."""
    tensors, skeleton = flatten(nest)
    return unflatten([change(tensor) for tensor in tensors], skeleton)


def nbytes(nest: Nest) -> int:
    """Bytes of all tensors: what would travel, without the few bytes of structure."""
    return sum(tensor.numel() * tensor.element_size() for tensor in leaves(nest))


def finite(nest: Nest) -> bool:
    """Whether every floating-point tensor of the nest is finite throughout."""
    # A finite sum has finite terms: one pass without a mask. A sum that is not may only have overflowed.
    return all(math.isfinite(t.sum()) or bool(torch.isfinite(t).all()) for t in leaves(nest) if t.is_floating_point())


class Form:
    """What a nest looks like, whatever its tensors hold: names, shapes and types.

    >>> form = Form({"w": torch.ones(2), "step": 3})
    >>> form.misfit({"w": torch.zeros(2), "step": 3})
    >>> form.misfit({"w": torch.ones(1), "step": 3})
    "['w'] is float32 [1], expected float32 [2]"
    """

    def __init__(self, nest: Nest) -> None:
        self._places = list(_places(nest, ""))

    def misfit(self, nest: Nest) -> str | None:
        """The first place where another nest looks different; None: it does not."""
        try:
            places = list(_places(nest, ""))
        except TypeError:
            return _short(f"{_complaint(nest, 'it')}")
        except RecursionError:
            return "it is nested too deeply"
        if places == self._places:
            return None
        wanted, found = dict(self._places), dict(places)
        for place in (*wanted, *found):
            if place not in found:
                return f"{place or 'all of it'} is missing"
            if place not in wanted:
                return f"{_short(place)} is unknown"
            if found[place] != wanted[place]:
                return f"{place or 'it'} is {_short(found[place])}, expected {wanted[place]}"
        return "its names come in another order"


def equal(a: Nest, b: Nest) -> bool:
    """Whether two nests are the same bit for bit, structure and types included."""
    (left, skeleton), (right, other) = flatten(a), flatten(b)
    return json.dumps(skeleton) == json.dumps(other) and all(  # as text, 1 is neither 1.0 nor True
        x.dtype == y.dtype and x.shape == y.shape and raw(x) == raw(y) for x, y in zip(left, right, strict=True)
    )


def raw(tensor: Tensor) -> bytes:
    """The bytes of a tensor's numbers."""
    return _bytes(tensor.detach().cpu().contiguous()).tobytes()


def _bytes(tensor: Tensor) -> NDArray[np.uint8]:
    """The same memory, byte by byte."""
    # A single number counts as contiguous whatever its stride, which then says nothing and only stands in the way.
    found: NDArray[np.uint8] = tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy()
    return found


def dump(nest: Nest) -> bytes:
    """A nest as one self-describing blob.

    >>> load(dump((1.5, None, torch.arange(3))))
    (1.5, None, tensor([0, 1, 2]))
    """
    tensors, skeleton = flatten(nest)
    # One entry for all tensors of a type: the format's price per entry is higher than that of most tensors' bytes.
    packs: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        packs.setdefault(str(tensor.dtype), []).append(tensor.detach().cpu().contiguous())
    described = json.dumps([json.dumps(skeleton), [[str(tensor.dtype), *tensor.shape] for tensor in tensors]])
    header: dict[str, Any] = {"__metadata__": {_PACKED: described}}
    numbers: list[memoryview] = []
    end = 0
    for kind in sorted(packs, key=lambda kind: -_TYPES[kind][1].itemsize):  # each aligned, without gaps
        name, dtype = _TYPES[kind]
        count = sum(tensor.numel() for tensor in packs[kind])
        start, end = end, end + count * dtype.itemsize
        header[kind] = {"dtype": name, "shape": [count], "data_offsets": [start, end]}
        numbers += [_bytes(tensor).data for tensor in packs[kind]]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    # Joined by hand, since the library would copy everything twice more.
    return b"".join((len(text).to_bytes(8, "little"), text, *numbers))


def load(blob: Blob) -> Nest:
    """The nest of a blob made by `dump`."""
    try:
        start = 8 + int.from_bytes(blob[:8], "little")
        header = json.loads(bytes(blob[8:start]))
        described = header["__metadata__"]
        if _APART in described:  # written before tensors were packed: one entry each
            packs = load_tensors(bytes(blob))
            return unflatten([packs[str(i)] for i in range(len(packs))], json.loads(described[_APART]))
        skeleton, pieces = json.loads(described[_PACKED])
        places = {kind: start + entry["data_offsets"][0] for kind, entry in header.items() if kind in _TYPES}
        tensors, left = [], len(blob) - start
        for kind, *shape in pieces:
            size = math.prod(shape) * _TYPES[kind][1].itemsize
            left -= size  # of all types together: no byte is taken twice
            if size < 0 or left < 0 or places[kind] + size > len(blob):
                raise ValueError("it is shorter than it says")
            tensor = torch.empty(shape, dtype=_TYPES[kind][1])  # memory of its own, aligned as everywhere else
            if size:
                _bytes(tensor)[:] = np.frombuffer(blob, np.uint8, size, places[kind])
            places[kind] += size
            tensors.append(tensor)
        return unflatten(tensors, json.loads(skeleton))
    except Exception as error:
        raise ValueError(f"not a nest written by acclimate, or damaged ({error})") from error


class Parcel:
    """A nest on its way to another client, process or sitting; or its blob, which it becomes only where it has to.

    Whoever opens one gets tensors of their own. Whoever makes one hands its tensors over: they must not change later.

    >>> parcel = Parcel({"w": torch.ones(2)})
    >>> parcel.open()["w"].zero_(), Parcel(parcel.seal()).open()
    (tensor([0., 0.]), {'w': tensor([1., 1.])})
    """

    def __init__(self, content: Nest | Blob) -> None:
        self._content = content  # no nest is bytes, so it is clear which of the two it is

    def seal(self) -> bytes:
        """The blob."""
        return bytes(self._content) if isinstance(self._content, Blob) else dump(self._content)

    def open(self) -> Nest:
        """The nest, copied; contiguous tensors, as from a blob, so that sums over them have the same bits."""
        return load(self._content) if isinstance(self._content, Blob) else transform(copy, self._content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Parcel) and self.seal() == other.seal()

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        self._content = self.seal()  # it may be sent to many
        return Parcel, (sendable(self._content, protocol),)


class Shared(Parcel):
    """A parcel that many get: it travels to another process once in a run of tasks, or, if it is lasting, once.

    Whoever reads it gets the same tensors as everybody else in the process, and must not change them.
    """

    _keys = count()

    def __init__(self, content: Nest | bytes, lasting: bool = False) -> None:
        super().__init__(content)
        self.lasting, self.key = lasting, next(self._keys)

    @cached_property
    def blob(self) -> bytes:
        """The blob, made once."""
        return super().seal()

    def seal(self) -> bytes:
        return self.blob

    @cached_property
    def _opened(self) -> Nest:
        return self.open()

    def read(self) -> Nest:
        """The nest, opened once."""
        return self._opened

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Shared, (sendable(self.blob, protocol), self.lasting)


def sendable(blob: bytes, protocol: int) -> bytes | PickleBuffer:
    """A blob that need not be copied into what is sent, if it is large (`engine.pipes`)."""
    return PickleBuffer(blob) if protocol >= 5 and len(blob) >= APART else blob


def _skeleton(nest: Nest, tensors: list[Tensor]) -> Skeleton:
    if isinstance(nest, Tensor):
        tensors.append(nest)
        return {"tensor": len(tensors) - 1}
    if isinstance(nest, Mapping):
        return {"dict": [[_scalar(key, str | int), _skeleton(value, tensors)] for key, value in nest.items()]}
    if isinstance(nest, tuple | list):
        items = [_skeleton(item, tensors) for item in nest]
        if hasattr(nest, "_fields"):
            return {"named": [type(nest).__module__, type(nest).__qualname__], "items": items}
        return {"tuple" if isinstance(nest, tuple) else "list": items}
    return _scalar(nest, bool | int | float | str | None)


def _scalar(value: Any, kinds: Any) -> Any:
    """The value, as it comes back from JSON: a number of NumPy's becomes Python's."""
    if not isinstance(value, kinds):
        raise TypeError
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return None


def _complaint(nest: Nest, path: str) -> str | None:
    """What is wrong with something that is no nest, and where: looked for only when it is needed."""
    if isinstance(nest, Mapping):
        for key, value in nest.items():
            if not isinstance(key, str | int):
                return f"{path} has the key {key!r}; keys are strings or whole numbers"
            if found := _complaint(value, f"{path}[{key!r}]"):
                return found
    elif isinstance(nest, tuple | list):
        return next(filter(None, (_complaint(item, f"{path}[{i}]") for i, item in enumerate(nest))), None)
    elif nest is not None and not isinstance(nest, Tensor | bool | int | float | str):
        return (
            f"{path} is a {type(nest).__name__}; states and messages may hold tensors, numbers, strings and None "
            "in dicts, lists, tuples and NamedTuples"
        )
    return None


def _places(nest: Nest, path: str) -> Iterator[tuple[str, str]]:
    """Every place of a nest, and what is there."""
    if isinstance(nest, Tensor):
        yield path, f"{str(nest.dtype).removeprefix('torch.')} {list(nest.shape)}"
    elif isinstance(nest, Mapping):
        yield path, "a mapping"
        for key, item in nest.items():
            yield from _places(item, f"{path}[{_scalar(key, str | int)!r}]")
    elif isinstance(nest, tuple | list):
        yield path, f"a {type(nest).__name__} of {len(nest)}"
        for i, item in enumerate(nest):
            yield from _places(item, f"{path}[{i}]")
    else:
        yield path, repr(_scalar(nest, bool | int | float | str | None))


def _short(text: str, most: int = 80) -> str:
    """Somebody else's text, cut where it is long."""
    return text if len(text) <= most else f"{text[:most]}…"


def _rebuild(skeleton: Any, tensors: Iterator[tuple[int, Tensor]]) -> Nest:
    if not isinstance(skeleton, dict):
        return skeleton
    if "tensor" in skeleton:
        # One that is named again would be copied again by whoever opens the nest: a small blob could fill the memory.
        place, tensor = next(tensors, (None, None))
        if place is None or place != skeleton["tensor"]:
            raise ValueError(f"expected every tensor once and in order, found {skeleton['tensor']} in place {place}")
        return tensor
    if "dict" in skeleton:
        return {key: _rebuild(value, tensors) for key, value in skeleton["dict"]}
    if "named" in skeleton:
        return _named(*skeleton["named"])([_rebuild(item, tensors) for item in skeleton["items"]])
    kind = tuple if "tuple" in skeleton else list
    return kind(_rebuild(item, tensors) for item in skeleton["tuple" if kind is tuple else "list"])


def _named(module: str, qualname: str) -> Callable[[list[Nest]], Nest]:
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr_static(found, part, None)  # where an ordinary look could make a lazy module import others
    if not (isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_make")):
        raise ValueError(f"the saved state is a {qualname} of {module}, which is not imported here")
    make: Callable[[list[Nest]], Nest] = found._make
    return make
