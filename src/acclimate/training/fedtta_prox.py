"""FedTTA-Prox: FedTTA whose base model stays general (Ye et al., SDM 2024, §3.3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from acclimate.models.extended import plain
from acclimate.options import NonNegative, Positive
from acclimate.params import Params
from acclimate.terms import looking_back
from acclimate.training.fedtta import FedTTA


@dataclass(frozen=True)
class FedTTAProx(FedTTA):
    """FedTTA with a pull of the base model's predictions, before adaptation, to those of the model as it was sent.

    The paper prints KL(local ‖ server); the released code, and `direction: code`, has KL(server ‖ local) (E9).
    """

    adapt_lr: Positive = 0.001  # η_adapt
    mu: NonNegative = 0.01  # μ
    direction: Literal["code", "paper"] = "code"

    def beside(self, net: nn.Module, w: Params, x: Tensor, z: Tensor) -> Tensor | float:
        with looking_back(net):
            sent = functional_call(net, plain(w), (x,)).log_softmax(-1)  # f(X; ψˢ)
        own = z.log_softmax(-1)
        of, to = (sent, own) if self.direction == "code" else (own, sent)
        return self.mu * F.kl_div(to, of, reduction="batchmean", log_target=True)  # μ KL(of ‖ to), eq. (13)
