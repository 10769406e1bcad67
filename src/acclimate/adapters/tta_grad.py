"""TTA-grad: entropy steps whose result is shared and mixed, the local half of TSA (Zhang et al., KDD 2024)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from acclimate import params
from acclimate.adapters.on_batches import OnBatches
from acclimate.contracts import Adapter
from acclimate.losses import Term, entropy
from acclimate.models.norms import affine, batch_moments, batch_norms, batch_statistics, before_each, norm_layers
from acclimate.models.norms import statistics as statistics_of
from acclimate.options import Count, Positive, Whole
from acclimate.params import Params
from acclimate.trees import Nest

MOMENTUM = 0.1  # of running statistics: torch's own


class TTAGrad(OnBatches):
    """One step down the entropy of the batch, on batch statistics, then predict the same batch.

    The paper says neither which tensors move nor how. `trains: affine` are the scales and shifts of normalisation
    layers, `all` is everything. Plain SGD barely moves any of it at the paper's rate; `optimizer: adam` does, and its
    moments stay on the client. `statistics: running` predicts with running statistics, which follow the batch's and are
    shared and mixed as well. `term` adds a client-side term with the last download as its anchor and the last upload as
    the previous model; FedProx's is zero at the anchor, so it needs `steps` above one to matter. `finetune` takes that
    many further steps for the prediction alone (FedAvg+FT). A batch of one image has no statistics of its own: it is
    predicted with the source's, or the running ones, and teaches nothing.
    """

    def __init__(
        self,
        net: nn.Module,
        *,
        lr: Positive = 1e-4,
        steps: Count = 1,
        trains: Literal["affine", "all"] = "affine",
        optimizer: Literal["sgd", "adam"] = "sgd",
        statistics: Literal["batch", "running"] = "batch",
        term: Term | None = None,
        finetune: Whole = 0,
    ) -> None:
        super().__init__(net.requires_grad_(False))
        self.lr, self.steps, self.finetune = lr, steps, finetune
        chosen = affine(norm_layers(net, "tta-grad")) if trains == "affine" else dict(net.named_parameters())
        self.trained: Params = {name: tensor.requires_grad_() for name, tensor in chosen.items()}
        self.layers = batch_norms(net, "tta-grad") if statistics == "running" else {}
        if optimizer == "adam":
            self.optimizer = torch.optim.Adam(self.trained.values(), lr=lr)
        self.term = term
        self.anchor = self.shared() if term is not None else {}  # the last download; the source model before the first
        self.previous: Params | None = None  # the last upload

    def moving(self) -> Params:
        return {**self.trained, **statistics_of(self.layers)}

    def adapt(self, x: Tensor) -> None:
        self._descend(x, self.steps)
        if self.term is not None:
            self.previous = self.shared()

    def predict(self, x: Tensor) -> Tensor:
        kept = self.state() if self.finetune else None
        self._descend(x, self.finetune)
        logits = Adapter.predict(self, x) if self.layers else super().predict(x)
        if kept is not None:
            self.load_state(kept)
        return logits

    def _descend(self, x: Tensor, steps: int) -> None:
        running = statistics_of(self.layers)

        def follow(name: str, layer: _BatchNorm, entering: Tensor) -> None:
            mean, variance = batch_moments(entering.detach())
            running[f"{name}.running_mean"].lerp_(mean, MOMENTUM)
            running[f"{name}.running_var"].lerp_(variance, MOMENTUM)

        with torch.enable_grad(), batch_statistics(self.net, len(x)):
            for _ in range(steps if len(x) > 1 else 0):
                with before_each(self.layers, follow):
                    loss = entropy(self.net(x)).mean()  # F_i, eq. (6)
                if self.term is not None:
                    loss = loss + self.term(self.net, x, self.anchor, self.previous)
                self._step(loss)  # θ_i^t, from θ̄_i^{t−1}

    def _step(self, loss: Tensor) -> None:
        if self.optimizer is None:
            params.descend(loss, self.trained, self.lr)
        else:
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def load_shared(self, shared: Mapping[str, Tensor]) -> None:
        super().load_shared(shared)
        if self.term is not None:
            self.anchor = self.shared()

    def state(self) -> Nest:
        return {**super().state(), "anchor": self.anchor, "previous": self.previous}

    def load_state(self, state: Nest) -> None:
        super().load_state(state)
        self.anchor, self.previous = state["anchor"], state["previous"]
