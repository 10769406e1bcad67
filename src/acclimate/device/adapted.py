"""A classifier that adapts: what `ac.wrap` and `ac.load` return."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from acclimate import params, trees
from acclimate.adapters.around import Around
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
            return self._met(self.adapter, batch, named).to(self._dtype)  # type: ignore[no-any-return]

    def adapt(self, *batch: Any, **named: Any) -> None:
        """Learn from a batch, and predict nothing."""
        with torch.inference_mode(False):
            self._met(self.adapter.adapt, batch, named)

    def predict(self, *batch: Any, **named: Any) -> Tensor:
        """The logits of a batch, nothing learnt."""
        with torch.inference_mode(False), torch.no_grad():
            return self._met(self.adapter.predict, batch, named).to(self._dtype)  # type: ignore[no-any-return]

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
        whose = {"adapter": self.method.name, "options": self.method.options, "model": self._model}
        return {"kind": STATE, **whose, "state": self.state()}

    def load_signed(self, signed: Nest, where: str | Path) -> None:
        """Go back to a state that says whose it is, if it is this one's; if it is not, nothing changes."""
        options = signed.get("options", {}) if isinstance(signed, dict) else None
        if not isinstance(options, dict) or signed.get("kind") != STATE:
            raise ForeignState(f"{where}: expected a state written by save(), found something else")
        if (signed.get("adapter"), signed.get("model")) != (self.method.name, self._model):
            raise ForeignState(
                f"{where} is a state of '{signed.get('adapter')}' around {signed.get('model')}; "
                f"this is '{self.method.name}' around {self._model}"
            )
        if others := list(_differing(options, self.method.options)):
            raise ForeignState(
                f"{where} is a state of '{self.method.name}' with other options: {'; '.join(others)}; "
                "give the same ones, or begin anew without the file"
            )
        now = trees.dump(self.state())
        try:
            self._load_fitting(signed.get("state"), told="options" in signed)
        except Exception as error:  # whatever an adapter says of a state that is not its own
            self.load_state(trees.load(now))
            raise ForeignState(
                f"{where} has no state from which '{self.method.name}' can go on "
                f"({type(error).__name__}: {error}); begin anew without the file"
            ) from error

    def _load_fitting(self, state: Nest, told: bool) -> None:
        """Go back to a state; whatever is raised says why the adapter cannot go on from it.

        Version 0.2 and earlier ones have not `told` their options; those of an optimizer are in its state all the same.
        """
        if not trees.finite(state) and trees.finite(trees.load(self._first)):
            raise ValueError("it has values that are not finite, since adaptation had gone astray")
        before = _settings(self.adapter)
        self.load_state(state)
        for own, found in zip(before, _settings(self.adapter), strict=True):
            others = sorted(own.keys() ^ found.keys()) or ([] if told else list(_differing(found, own)))
            if others:
                raise ValueError(f"its optimizer has other settings: {'; '.join(others)}")

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

    def _met(self, do: Callable[[Tensor], Any], batch: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        """What an adapter makes of a batch.

        A guard looks for itself at one tensor. Several are numbers of rows to it, so it is shown those of finite ones.
        """
        x, guard, given = self._given(*batch, **named), self.adapter, (*batch, *named.values())
        if not isinstance(guard, Around) or len(given) == 1 or (whole := _finite_rows(given)).all():
            return do(x)
        answers = do(x[whole]) if whole.any() else guard.source(x[:1])[:0]
        guard.figures["stepped_in"] = torch.tensor(True)
        if answers is None:
            return None
        alike = answers.new_zeros(len(x), *answers.shape[1:])  # all classes, where nothing is known
        return alike.index_copy(0, whole.nonzero()[:, 0], answers)

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


def _finite_rows(given: Iterable[Any]) -> Tensor:
    """Which examples are finite in every tensor."""
    tensors = [value for value in given if isinstance(value, Tensor)]
    return torch.stack([tensor.isfinite().unsqueeze(1).flatten(1).all(1) for tensor in tensors]).all(0)


def _settings(adapter: Adapter) -> list[dict[str, Any]]:
    """How the optimizers of an adapter, and of the adapters inside it, are set up."""
    used = [one.optimizer for one in adapter.modules() if isinstance(one, Adapter) and one.optimizer is not None]
    groups = [group for optimizer in used for group in optimizer.param_groups]
    return [{key: value for key, value in group.items() if key != "params"} for group in groups]


def _differing(theirs: Mapping[str, Any], ours: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Options that are not the same, in words; one that only one of them has may be of another version."""
    for key in (key for key in theirs if key in ours):
        found, own = theirs[key], ours[key]
        if isinstance(found, Mapping) and isinstance(own, Mapping):
            yield from _differing(found, own, f"{path}{key}.")
        elif repr(found) != repr(own):
            yield f"{path}{key} {found!r}, here {own!r}"


def _digest(source: Params) -> str:
    digest = hashlib.sha256()
    for name, tensor in source.items():
        digest.update(f"{name} {list(tensor.shape)} ".encode() + trees.raw(tensor))
    return digest.hexdigest()[:12]
