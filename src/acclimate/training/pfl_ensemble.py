"""PFL-Ensemble: new clients get everybody's personal model (Ye et al., SDM 2024, §4.1, on FedPer).

The paper says that logits are averaged. Heads are linear, so that is the model with the mean head, which is what new
clients get; the adapter of the same name, as in `fedtta-table1`, averages the probabilities instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from acclimate.contracts import Knowledge
from acclimate.params import Params
from acclimate.training.pfl_sampled import KeptHeads, Released, State


@dataclass(frozen=True)
class PFLEnsemble(KeptHeads):
    """FedPer; a new client is given the heads of all training clients. Who trained has its own."""

    exports = ("model", "heads")

    def release(self, server: State, id: int) -> Released:
        return Released(server.body.w, list(server.heads.values()))

    def export(self, released: Released, own: Params | None, client: int) -> Knowledge:
        every = released.heads or ([own] if own else [])
        heads = {name: torch.stack([head[name] for head in every]) for name in (every[0] if every else {})}
        mean = {name: stack.mean(0) for name, stack in heads.items()}
        return {"model": {**released.body, **(own or mean)}, "heads": heads}
