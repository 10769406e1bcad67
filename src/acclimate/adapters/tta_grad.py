"""TTA-grad: entropy steps whose result is shared and mixed, the local half of TSA (Zhang et al., KDD 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from acclimate import params
from acclimate.adapters.on_batches import OnBatches
from acclimate.losses import Term, entropy
from acclimate.models.norms import affine, batch_statistics, norm_layers
from acclimate.options import Count, Positive, Whole
from acclimate.params import Params
from acclimate.trees import Nest


class TTAGrad(OnBatches):
    """One plain SGD step down the entropy of the batch, on batch statistics, then predict the same batch.

    The paper does not say which tensors move: `trains: affine` are the scales and shifts of normalisation layers, which
    barely move at its rate, `all` is everything. `term` adds a client-side term with the last download as its anchor
    and the last upload as the previous model; FedProx's is zero at the anchor, so it needs `steps` above one to matter.
    `finetune` takes that many further steps for the prediction alone (FedAvg+FT). A batch of one image has no
    statistics of its own: it is predicted with the source's and teaches nothing.
    """

    def __init__(
        self,
        net: nn.Module,
        *,
        lr: Positive = 1e-4,
        steps: Count = 1,
        trains: Literal["affine", "all"] = "affine",
        term: Term | None = None,
        finetune: Whole = 0,
    ) -> None:
        super().__init__(net.requires_grad_(False))
        self.lr, self.steps, self.finetune = lr, steps, finetune
        chosen = affine(norm_layers(net, "tta-grad")) if trains == "affine" else dict(net.named_parameters())
        self.trained: Params = {name: tensor.requires_grad_() for name, tensor in chosen.items()}
        self.term = term
        self.anchor = self.shared() if term is not None else {}  # the last download; the source model before the first
        self.previous: Params | None = None  # the last upload

    def moving(self) -> Params:
        return self.trained

    def adapt(self, x: Tensor) -> None:
        self._descend(x, self.steps)
        if self.term is not None:
            self.previous = self.shared()

    def predict(self, x: Tensor) -> Tensor:
        kept = self.shared() if self.finetune else {}
        self._descend(x, self.finetune)
        logits = super().predict(x)
        if kept:
            params.assign(self.trained, kept)
        return logits

    def _descend(self, x: Tensor, steps: int) -> None:
        with torch.enable_grad(), batch_statistics(self.net, len(x)):
            for _ in range(steps if len(x) > 1 else 0):
                loss = entropy(self.net(x)).mean()  # F_i, eq. (6)
                if self.term is not None:
                    loss = loss + self.term(self.net, x, self.anchor, self.previous)
                params.descend(loss, self.trained, self.lr)  # θ_i^t, from θ̄_i^{t−1}

    def load_shared(self, shared: Mapping[str, Tensor]) -> None:
        super().load_shared(shared)
        if self.term is not None:
            self.anchor = self.shared()

    def state(self) -> Nest:
        return {**super().state(), "anchor": self.anchor, "previous": self.previous}

    def load_state(self, state: Nest) -> None:
        super().load_state(state)
        self.anchor, self.previous = state["anchor"], state["previous"]
