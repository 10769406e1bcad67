"""EM: adjusting a classifier to new a priori probabilities (Saerens et al., Neural Computation 2002)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from acclimate.contracts import Adapter, Limits
from acclimate.options import Count
from acclimate.params import Params


class EM(Adapter):
    """Estimate a batch's label distribution from the predictions themselves; the source's is uniform.

    One iteration: prior := mean posterior; posterior ∝ softmax · prior. Predictions are log-posteriors.
    """

    def __init__(self, net: nn.Module, *, iterations: Count = 2) -> None:
        super().__init__(net)
        self.iterations = iterations
        self.log_prior = torch.zeros(0)  # estimated on the last batch; empty before the first

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        log_p: Tensor = self.net(x).log_softmax(-1)
        posterior = log_p
        for _ in range(self.iterations):
            # In logarithms, so that no class is ruled out by underflow.
            self.log_prior = posterior.logsumexp(0) - math.log(len(x))  # eq. (2.9), first line
            posterior = (log_p + self.log_prior).log_softmax(-1)  # eq. (2.9), second line
        return posterior

    def adapt(self, x: Tensor) -> None:
        self(x)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        log_p: Tensor = self.net(x).log_softmax(-1)
        return (log_p + self.log_prior).log_softmax(-1) if len(self.log_prior) else log_p

    def state(self) -> Params:
        return {"log_prior": self.log_prior.clone()}

    def load_state(self, state: Params) -> None:
        self.log_prior = state["log_prior"].clone()

    def shared(self) -> Params:
        return {"prior": self.log_prior.exp()}  # probabilities: these can be averaged

    def load_shared(self, shared: Params) -> None:  # type: ignore[override]
        self.log_prior = shared["prior"].log()

    def expects(self, classes: int) -> Params:
        return {"prior": next(self.net.parameters()).new_zeros(classes)}

    def limits(self) -> Limits:
        return {"prior": (0.0, 1.0)}
