"""A classifier with further modules beside its own: a second head, a rotation head, a projection.

They are named beside the plain tensors (`extra.rotation.weight`) and drawn after them, so that the plain model starts
at the same place with and without them.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from acclimate import params
from acclimate.params import Params

EXTRA = "extra"


class Extended(nn.Module):
    """Predicts as the plain model does; a subclass may predict otherwise, with what was added."""

    extra: nn.ModuleDict

    def __init__(self, net: nn.Module, **modules: nn.Module) -> None:
        super().__init__()
        before = dict(net.extra) if isinstance(net, Extended) else {}
        # The plain model's own tables of tensors and layers, so that everything keeps its name, whoever swaps it; a
        # child of the plain model itself would run as one of its layers where that is an nn.Sequential.
        self._parameters, self._buffers = net._parameters, net._buffers
        self._modules = {name: module for name, module in net._modules.items() if name != EXTRA}
        self.extra = nn.ModuleDict({**before, **modules})
        vars(self)["plain"] = net  # not a child: its layers are ours

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = vars(self)["plain"](x)
        return logits

    def train(self, mode: bool = True) -> Extended:
        vars(self)["plain"].train(mode)  # it may look at its own mode
        return super().train(mode)


def is_extra(name: str) -> bool:
    """Whether a tensor or module, by its name, was added to the plain model.

    >>> is_extra("extra.rotation.weight"), is_extra("conv1.weight")
    (True, False)
    """
    return name == EXTRA or name.startswith(f"{EXTRA}.")


def plain(model: Mapping[str, Tensor]) -> Params:
    """The tensors of the plain model."""
    return params.select(model, lambda name: not is_extra(name))
