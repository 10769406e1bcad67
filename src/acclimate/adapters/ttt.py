"""TTT: test-time training on rotations (Sun et al., ICML 2020), online."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acclimate import params
from acclimate.contracts import Adapter
from acclimate.models.head import head_names
from acclimate.models.rotation import rotation_head, rotation_loss
from acclimate.options import Count, Positive
from acclimate.params import Params


class TTT(Adapter):
    """Before a batch is predicted, all but the head move down the loss of telling its images' turns, and stay there.

    A batch moves together, by the mean over its images in all four turns; the reference takes image after image, each
    in random turns (which batches of one image come to). Batch norms keep their statistics.
    """

    needs = ("rotation",)

    def __init__(self, net: nn.Module, *, rotation: Params, lr: Positive = 1e-3, steps: Count = 1) -> None:
        super().__init__(net.requires_grad_(False))
        self.lr, self.steps = lr, steps
        self.turns = params.load(rotation_head(net), rotation).requires_grad_(False)
        head = head_names(net)
        self.body: Params = {name: tensor for name, tensor in net.named_parameters() if name not in head}
        for tensor in self.body.values():
            tensor.requires_grad_(True)

    def moving(self) -> Params:
        return self.body

    def adapt(self, x: Tensor) -> None:
        for _ in range(self.steps if self.body else 0):  # a model may be nothing but a head
            with torch.enable_grad():
                loss = rotation_loss(self.net, self.turns, x)  # l_s(x; θ_s, θ_e), eq. (4)
            params.descend(loss, self.body, self.lr)
