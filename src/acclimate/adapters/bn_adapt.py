"""BN-Adapt: covariate shift adaptation of batch statistics (Schneider et al., NeurIPS 2020)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from acclimate import params
from acclimate.contracts import Adapter
from acclimate.models.norms import batch_moments, batch_norms, before_each, statistics
from acclimate.options import Count, NonNegative
from acclimate.params import Params


class BNAdapt(Adapter):
    """Mix the source statistics of every batch norm with those of the batch; each batch starts afresh.

    One pass through the model: a layer's input is already normalised by the mixed statistics of the layers
    before it. `prior: 0, unbiased: false` is TSA's TTA-bn: nothing but the batch, and the variance it normalises by.
    ATP's comparison weighs a short last batch as a whole one, which `batch: 20` does.
    """

    def __init__(
        self,
        net: nn.Module,
        *,
        prior: NonNegative = 16.0,
        unbiased: bool = True,
        batch: Count | None = None,  # n, images that the prior is weighed against; by default those at hand
    ) -> None:
        super().__init__(net)
        self.prior, self.batch = prior, batch  # N, the source's weight in images: its share is N / (N + n)
        self.unbiased = unbiased
        self.layers = batch_norms(net, "bn-adapt")
        self.source = {name: params.copy(tensor) for name, tensor in self.moving().items()}

    def moving(self) -> Params:
        return statistics(self.layers)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        share = self.prior / (self.prior + (self.batch or len(x)))

        def mix(name: str, layer: _BatchNorm, entering: Tensor) -> None:
            mean, variance = batch_moments(entering, self.unbiased)
            for statistic, batch in (("running_mean", mean), ("running_var", variance)):
                source = self.source[f"{name}.{statistic}"]
                layer.get_buffer(statistic).copy_(share * source + (1 - share) * batch)  # eq. (2)

        with before_each(self.layers, mix):
            logits: Tensor = self.net(x)
        return logits

    def adapt(self, x: Tensor) -> None:
        self(x)
