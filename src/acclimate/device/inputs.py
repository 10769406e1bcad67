"""Any classifier as adapters expect one: called with one tensor whose rows are the batch, it returns logits.

Nothing of the model is renamed: hooks translate on the way in and out. A call with several tensors reaches an adapter
as the numbers of their rows, which it may split and pick like any batch, and the model as the rows themselves.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from acclimate.errors import UnsupportedInput, UnsupportedModel

HALF = (torch.float16, torch.bfloat16)


def adaptable(model: nn.Module) -> nn.Module:
    """A copy that can be adapted: not compiled, and in float32 where it is in half precision, which is too coarse.

    What `torch.compile` returns is a shell around the module that is meant.
    """
    plain: nn.Module = getattr(model, "_orig_mod", model)
    if isinstance(plain, torch.jit.ScriptModule):
        raise UnsupportedModel("scripting hides the layers of a model; wrap the module that was scripted")
    try:
        net = copy.deepcopy(plain)
    except RuntimeError as error:
        raise UnsupportedModel(
            f"{type(plain).__name__} cannot be copied ({error}); make tensors that are computed from others in forward"
        ) from error
    return net.float() if dtype_of(plain) in HALF else net


def dtype_of(net: nn.Module) -> torch.dtype:
    """The type of a model's weights."""
    return next((tensor.dtype for tensor in net.parameters() if tensor.is_floating_point()), torch.float32)


class Inputs:
    """Puts itself before and behind a model."""

    def __init__(self, net: nn.Module) -> None:
        self._named: str | None = None  # the only tensor was given by name
        self._held: tuple[tuple[Any, ...], dict[str, Any]] | None = None  # several were given
        net.register_forward_pre_hook(self._before, with_kwargs=True)
        net.register_forward_hook(lambda module, _, output: logits_of(output, module))

    def __call__(self, *given: Any, **named: Any) -> Tensor:
        """What an adapter is to be called with."""
        given, named = tuple(map(widened, given)), {name: widened(value) for name, value in named.items()}
        self._named = self._held = None
        tensors = [value for value in (*given, *named.values()) if isinstance(value, Tensor)]
        if not tensors or any(tensor.dim() == 0 or len(tensor) != len(tensors[0]) for tensor in tensors):
            shapes = ", ".join(str(list(tensor.shape)) for tensor in tensors) or "no tensor"
            raise UnsupportedInput(f"expected a batch: one or more tensors with a row per example; found {shapes}")
        if len(given) + len(named) == 1:
            self._named = next(iter(named), None)
            return tensors[0]
        self._held = (given, named)
        return numbered(len(tensors[0]))

    def __deepcopy__(self, memo: dict[int, Any]) -> Inputs:
        return self  # a copy of the model, as an adapter may keep one, is called with the same batches

    def _before(
        self, module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if self._named is not None:
            return (), {self._named: args[0]}
        if self._held is None:
            return args, named
        rows, (given, by_name) = args[0][:, 0], self._held
        return tuple(_rows(value, rows) for value in given), {name: _rows(v, rows) for name, v in by_name.items()}


def logits_of(output: Any, module: nn.Module) -> Tensor:
    """The logits [batch, classes] in whatever a classifier returns."""
    found = output
    if isinstance(output, Mapping):
        found = output.get("logits", next(iter(output.values())) if len(output) == 1 else None)
    elif hasattr(output, "logits"):
        found = output.logits
    elif isinstance(output, tuple | list):
        found = next((part for part in output if _is_logits(part)), None)
    if not _is_logits(found):
        shape = list(found.shape) if isinstance(found, Tensor) else type(output).__name__
        raise UnsupportedModel(
            f"expected logits [batch, classes] of {type(module).__name__}, as a tensor, first in a tuple, or called "
            f"logits; found {shape}: put the model into a module whose forward returns them"
        )
    logits: Tensor = found
    return logits


def _is_logits(found: Any) -> bool:
    return isinstance(found, Tensor) and found.dim() == 2 and found.is_floating_point()


def numbered(count: int) -> Tensor:
    """The numbers of rows, as a batch of examples [count, 1]."""
    return torch.arange(count).unsqueeze(1)


def widened(value: Any) -> Any:
    """A tensor in half precision as float32, one of inference mode as one that gradients may pass; else as it is."""
    if isinstance(value, Tensor) and value.is_inference():
        value = value.clone()
    return value.float() if isinstance(value, Tensor) and value.dtype in HALF else value


def _rows(value: Any, rows: Tensor) -> Any:
    return value[rows] if isinstance(value, Tensor) else value
