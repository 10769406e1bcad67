"""BBSE: black-box shift estimation of the label distribution (Lipton et al., ICML 2018)."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.contracts import Adapter, Limits
from acclimate.options import PositiveShare
from acclimate.params import Params
from acclimate.simplex import to_simplex


class BBSE(Adapter):
    """Solve Ĉ q = mean prediction for the batch's label distribution q and add log q to the logits.

    `confusion` counts predicted x true classes on source validation data. As in ATP's comparison the prior is
    not divided by the source's, which is uniform there.
    """

    needs = ("confusion",)

    def __init__(
        self,
        net: nn.Module,
        *,
        confusion: Tensor,
        kind: Literal["hard", "soft"] = "hard",
        smoothing: PositiveShare = 1e-3,
    ) -> None:
        super().__init__(net)
        self.kind, self.smoothing = kind, smoothing
        columns = confusion.sum(0, keepdim=True)
        # A class that validation data never showed counts as always recognised.
        conditional = torch.where(columns > 0, confusion / columns.clamp_min(1e-12), torch.eye(len(confusion)))
        self.inverse = torch.linalg.pinv(conditional.double())  # Ĉ⁻¹ of P(ŷ | y)
        self.prior = torch.zeros(0)  # estimated on the last batch; empty before the first

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        p = logits.softmax(-1) if self.kind == "soft" else F.one_hot(logits.argmax(-1), logits.shape[1])
        q = to_simplex(self.inverse @ p.double().mean(0))  # ŵ = Ĉ⁻¹ μ̂, eq. (4)
        q = (1 - self.smoothing) * q + self.smoothing / len(q)  # a little of the uniform: no class is ruled out
        self.prior = q.to(logits.dtype)
        return logits + self.prior.log()

    def adapt(self, x: Tensor) -> None:
        self(x)

    @torch.no_grad()
    def predict(self, x: Tensor) -> Tensor:
        logits: Tensor = self.net(x)
        return logits + self.prior.log() if len(self.prior) else logits

    def state(self) -> Params:
        return {"prior": self.prior.clone()}

    def load_state(self, state: Params) -> None:
        self.prior = state["prior"].clone()

    def shared(self) -> Params:
        return self.state()

    def load_shared(self, shared: Params) -> None:  # type: ignore[override]
        self.load_state(shared)

    def expects(self, classes: int) -> Params:
        return {"prior": next(self.net.parameters()).new_zeros(classes)}

    def limits(self) -> Limits:
        return {"prior": (0.0, 1.0)}
