"""The layout of a model's weights: channels last makes convolutions on a CPU 1.3 to 1.6 times faster.

Some models cannot have it (`x.view(len(x), -1)` asks for channels first), which only shows when they are called: the
first batch tries.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acclimate.contracts import Adapter


class Layout:
    """Channels last for an adapter and all the models it holds, until a batch shows that this cannot be."""

    def __init__(self, adapter: Adapter) -> None:
        parts = list(adapter.net.modules())
        on_cpu = any(isinstance(part, nn.Conv2d) and part.weight.device.type == "cpu" for part in parts)
        # torch 2.13 crashes in the backward pass of a group norm in this layout whose input needs no gradient.
        self._untried = on_cpu and not any(isinstance(part, nn.GroupNorm) for part in parts)
        if self._untried:
            adapter.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def suit(self, adapter: Adapter, x: Tensor) -> None:
        """Go back where the model cannot have it."""
        if not self._untried:
            return
        self._untried = False
        before = adapter.state()
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                adapter.net(x)
        except RuntimeError:  # whatever else is wrong will show again when the batch is met
            adapter.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        finally:
            adapter.load_state(before)
