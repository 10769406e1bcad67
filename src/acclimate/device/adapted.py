"""A classifier that adapts: what `ac.wrap` and `ac.load` return."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from acclimate import params, trees
from acclimate.contracts import Adapter, Knowledge
from acclimate.data.folders import write_whole
from acclimate.device.inputs import Inputs
from acclimate.device.layout import Layout
from acclimate.errors import ForeignState, UnsupportedInput
from acclimate.params import Params
from acclimate.trees import Nest

STATE = "acclimate state"


@dataclass(frozen=True)
class Method:
    """What adapts: by name, with its options as plain data, and what it was given besides the model."""

    name: str
    options: Mapping[str, Any]
    knowledge: Knowledge
    takes: Collection[str] = ("anything",)  # what examples: of a method around another, both


class Adapted(nn.Module):
    """Adapts to a batch without labels, then predicts it: `logits = adapted(batch)`.

    Called as the model is, with one or several tensors, by name or not. Always in evaluation mode: `train()` changes
    nothing. `reset()` goes back to the model as it was given.
    """

    def __init__(self, adapter: Adapter, inputs: Inputs, method: Method, dtype: torch.dtype, source: Params) -> None:
        super().__init__()
        self.adapter, self.method = adapter, method
        self._inputs, self._dtype = inputs, dtype
        self._model = f"{type(adapter.net).__name__} {_digest(source)}"
        self._first = trees.dump(adapter.state())
        self._layout = Layout(adapter)

    def forward(self, *batch: Any, **named: Any) -> Tensor:
        """Adapt and predict, in the paper's order; the logits."""
        with torch.inference_mode(False):  # whoever predicts in it may still want to adapt
            return self.adapter(self._given(*batch, **named)).to(self._dtype)  # type: ignore[no-any-return]

    def adapt(self, *batch: Any, **named: Any) -> None:
        """Learn from a batch, and predict nothing."""
        with torch.inference_mode(False):
            self.adapter.adapt(self._given(*batch, **named))

    def predict(self, *batch: Any, **named: Any) -> Tensor:
        """The logits of a batch, nothing learnt."""
        with torch.inference_mode(False), torch.no_grad():
            return self.adapter.predict(self._given(*batch, **named)).to(self._dtype)

    @property
    def intervened(self) -> bool:
        """Whether a guard stepped in at the last batch (its figure `stepped_in`); without one, never."""
        return bool(self.adapter.figures.get("stepped_in", False))

    def state(self) -> Nest:
        """All that adaptation has changed."""
        return self.adapter.state()

    def load_state(self, state: Nest) -> None:
        """Go back to a state."""
        self.adapter.load_state(state)

    def reset(self) -> None:
        """Go back to the model as it was given."""
        self.adapter.load_state(trees.load(self._first))

    def save(self, path: str | Path) -> None:
        """Write the state to one file."""
        content = trees.dump(self.signed())
        write_whole(Path(path), lambda file: file.write(content))

    def load(self, path: str | Path) -> None:
        """Go back to the state in a file, if it is one of this adapter around this model."""
        try:
            found = trees.load(Path(path).read_bytes())
        except ValueError as error:
            raise ForeignState(f"{path}: expected a state written by save(), found something else ({error})") from error
        self.load_signed(found, path)

    def signed(self) -> Nest:
        """The state, and whose it is."""
        return {"kind": STATE, "adapter": self.method.name, "model": self._model, "state": self.state()}

    def load_signed(self, signed: Nest, where: str | Path) -> None:
        """Go back to a state that says whose it is, if it is this one's."""
        if not isinstance(signed, dict) or signed.get("kind") != STATE:
            raise ForeignState(f"{where}: expected a state written by save(), found something else")
        if (signed["adapter"], signed["model"]) != (self.method.name, self._model):
            raise ForeignState(
                f"{where} is a state of '{signed['adapter']}' around {signed['model']}; "
                f"this is '{self.method.name}' around {self._model}"
            )
        self.load_state(signed["state"])

    def export(self, folder: str | Path) -> Path:
        """Write the model as it was given, what the method knows and a manifest, for `ac.load(folder, model=...)`."""
        from acclimate.device.bundle import Contents, write

        now, kind = trees.dump(self.state()), {"class": type(self.adapter.net).__name__}
        self.reset()
        given = params.of(self.adapter.net)
        self.load_state(trees.load(now))
        return write(Path(folder), Contents(self.method, given, [], origin=kind), {"torch": torch.__version__})

    def train(self, mode: bool = True) -> Adapted:
        """Changes nothing: adapters decide about modes."""
        return self

    def at(self, *batch: Any, **named: Any) -> tuple[nn.Module, Tensor]:
        """The model as it is now, and a batch as it takes one."""
        return self.adapter.net, self._given(*batch, **named)

    def _given(self, *batch: Any, **named: Any) -> Tensor:
        self.adapter.figures = {}
        x = self._inputs(*batch, **named)
        for kind in self.method.takes:
            if not _TAKES[kind](x):
                raise UnsupportedInput(
                    f"'{self.method.name}' makes augmented copies of {_WORDS[kind]}; found {list(x.shape)} of "
                    f"{str(x.dtype).removeprefix('torch.')}: use a method that makes none (tent, bn-adapt, em)"
                )
        self._layout.suit(self.adapter, x)
        return x


_WORDS = {
    "images": "images [batch, channels, height, width]",
    "pictures": "images [batch, 1 or 3 channels, height, width] of float32",
}
_TAKES: dict[str, Callable[[Tensor], bool]] = {
    "anything": lambda x: True,
    "images": lambda x: x.dim() == 4 and x.is_floating_point(),
    "pictures": lambda x: x.dim() == 4 and x.dtype == torch.float32 and x.shape[1] in (1, 3),
}


def _digest(source: Params) -> str:
    digest = hashlib.sha256()
    for name, tensor in source.items():
        digest.update(f"{name} {list(tensor.shape)} ".encode() + trees.raw(tensor))
    return digest.hexdigest()[:12]
