"""PFL-Ensemble: the mean prediction of everybody's head (Ye et al., SDM 2024, §4.1)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acclimate.contracts import Adapter
from acclimate.models.head import features, head_of
from acclimate.params import Params


class PFLEnsemble(Adapter):
    """Average the probabilities that the heads of all training clients give; one that trained uses its own alone.

    The paper averages logits; that is the model with the mean head, without this adapter.
    """

    needs = ("heads",)

    def __init__(self, net: nn.Module, *, heads: Params) -> None:
        super().__init__(net)
        name, self.head = head_of(net)
        self.weights = heads[f"{name}.weight"]  # [heads, classes, features]
        self.biases = heads.get(f"{name}.bias", torch.zeros_like(self.weights[..., 0]))
        self.trained = any(torch.equal(weight, self.head.weight) for weight in self.weights)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        z, logits = features(self.net, x, self.head)
        if self.trained:
            return logits
        every = torch.einsum("bf,kcf->kbc", z, self.weights) + self.biases.unsqueeze(1)
        return every.log_softmax(-1).logsumexp(0)  # log Σ_k p_k, which has the order of the mean
