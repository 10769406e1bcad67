"""What adapters share that predict with the statistics of the batch at hand."""

from __future__ import annotations

import torch
from torch import Tensor

from acclimate.contracts import Adapter
from acclimate.models.norms import batch_statistics


class OnBatches(Adapter):
    """Batch norms use the batch; its forward pass both learns and predicts, unless a subclass tells them apart."""

    def adapt(self, x: Tensor) -> None:
        self(x)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        with batch_statistics(self.net, len(x)):
            return super().predict(x)
