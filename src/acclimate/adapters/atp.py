"""ATP: adapting every module at its own learnt rate (Bao et al., NeurIPS 2023, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from acclimate import params
from acclimate.contracts import Adapter, Limits
from acclimate.errors import MissingKnowledge
from acclimate.models.modules import Modules
from acclimate.options import NonNegative
from acclimate.params import Params
from acclimate.trees import Nest


class ATP(Adapter):
    """Move each module from the source model by its rate times h, the batch's direction, and predict the same batch.

    `online` averages the directions of all batches so far, every one computed at the source model, in constant memory;
    else each batch stands alone. `order: code` averages adapted, clamped models instead (D7): the same unless a
    variance is clamped. The rates say which modules there are, so params-only and stats-only need no option here.
    """

    needs = ("rates",)

    def __init__(
        self,
        net: nn.Module,
        *,
        rates: Params,
        online: bool = True,
        unbiased: bool = True,
        floor: NonNegative = 0.0,
        order: Literal["paper", "code"] = "paper",
    ) -> None:
        super().__init__(net)
        stats = any(name.endswith(".running_var") for name in rates)
        weights = any(not name.endswith((".running_mean", ".running_var")) for name in rates)
        self.modules_ = Modules(net, "all" if stats and weights else "stats" if stats else "params")
        if self.modules_.tensors.keys() != rates.keys():
            raise MissingKnowledge(
                f"the rates are for other modules than {type(net).__name__} has; learn them on this model"
            )
        self.rates, self.online, self.unbiased, self.floor, self.order = rates, online, unbiased, floor, order
        self.count = 0  # k
        self.mean = params.zeros_like(self.modules_.source)  # h̄_k, or with `order: code` the mean adapted model

    def moving(self) -> Params:
        return self.modules_.tensors

    def adapt(self, x: Tensor) -> None:
        self.modules_.restore()  # every h is computed at w_G
        h = self.modules_.directions(x, self.unbiased)
        if self.order == "code":
            self.modules_.move(self.rates, h, self.floor)
            h = {name: params.copy(tensor) for name, tensor in self.modules_.tensors.items()}
        k = self.count = self.count + 1 if self.online else 1
        with torch.no_grad():  # h̄_k = ((k − 1) h̄_{k−1} + h_k) / k, eq. (8)
            self.mean = {name: ((k - 1) * self.mean[name] + h[name]) / k for name in h}
        self._apply_mean()

    def _apply_mean(self) -> None:
        if self.count == 0:
            self.modules_.restore()
        elif self.order == "code":
            params.assign(self.modules_.tensors, self.mean)
        else:
            self.modules_.move(self.rates, self.mean, self.floor)

    def state(self) -> Nest:
        return {"count": self.count, "mean": {name: tensor.clone() for name, tensor in self.mean.items()}}

    def load_state(self, state: Nest) -> None:
        self.count, self.mean = state["count"], {name: tensor.clone() for name, tensor in state["mean"].items()}
        self._apply_mean()

    def shared(self) -> Params:
        return {name: tensor.clone() for name, tensor in self.mean.items()}

    def load_shared(self, shared: Mapping[str, Tensor]) -> None:
        self.mean = {name: tensor.clone() for name, tensor in shared.items()}
        self._apply_mean()

    def limits(self) -> Limits:
        return {}  # directions, not values: that of a variance may be negative
