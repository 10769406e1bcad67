"""T3A: test-time classifier adjustment (Iwasawa & Matsuo, NeurIPS 2021)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.contracts import Adapter
from acclimate.losses import entropy
from acclimate.models.head import features, head_of
from acclimate.options import Count
from acclimate.params import Params


class T3A(Adapter):
    """Replace the head by class prototypes: means of confident test features, started from the head's rows.

    The supports are kept on the client and grow with the stream unless `keep` bounds them; they are raw
    features, so nothing is shared.
    """

    def __init__(self, net: nn.Module, *, keep: Count | None = None, head: str | None = None) -> None:
        super().__init__(net)
        self.keep = keep  # M: how many supports per class, those of least entropy
        self.head = head_of(net, head)[1]
        rows = self.head.weight.detach()
        start = F.linear(rows, rows, self.head.bias)
        self.supports = rows.clone()  # S_0: the rows ω^k of the head
        self.labels = start.argmax(-1)
        self.entropies = entropy(start).detach()

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        z, logits = features(self.net, x, self.head)
        self.supports = torch.cat([self.supports, z])  # eq. (2)
        self.labels = torch.cat([self.labels, logits.argmax(-1)])
        self.entropies = torch.cat([self.entropies, entropy(logits)])
        if self.keep is not None:
            self._forget(self.keep)
        return self._classify(z)

    def adapt(self, x: Tensor) -> None:
        self(x)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        return self._classify(features(self.net, x, self.head)[0])

    def _classify(self, z: Tensor) -> Tensor:
        classes = self.head.out_features
        weights = F.one_hot(self.labels, classes).to(z.dtype)
        prototypes = F.normalize(weights.T @ F.normalize(self.supports, dim=1), dim=1)  # c_k, eq. (4)
        return z @ prototypes.T  # eq. (3)

    def _forget(self, keep: int) -> None:
        """Keep the `keep` supports of least entropy of every class, in their order (eq. (6))."""
        kept = [
            rows[self.entropies[rows].argsort(stable=True)[:keep]]
            for rows in ((self.labels == c).nonzero().flatten() for c in range(self.head.out_features))
        ]
        order = torch.cat(kept).sort().values
        self.supports, self.labels, self.entropies = (
            self.supports[order], self.labels[order], self.entropies[order]
        )  # fmt: skip

    def state(self) -> Params:
        return {
            "supports": self.supports.clone(),
            "labels": self.labels.clone(),
            "entropies": self.entropies.clone(),
        }

    def load_state(self, state: Params) -> None:
        self.supports, self.labels = state["supports"].clone(), state["labels"].clone()
        self.entropies = state["entropies"].clone()
