"""FedTTA: a model and a loss without labels that are trained together (Ye et al., SDM 2024, §3.2, Algorithm 1).

Where the paper and the released code differ, the defaults are the code's (E5 to E8, E10): weight decay in all steps,
momentum for the adaptation network, clipped outer gradients, rates that fall with the rounds, also at test time, and
clients weighed by their examples. `preset: plain` is the paper's text: none of the first four, whatever `local` says.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from acclimate import params
from acclimate.contracts import Client, Knowledge, Reply
from acclimate.models.extended import EXTRA, Extended, is_extra, plain
from acclimate.models.head import head_of
from acclimate.models.loss_net import InnerStep, LossNet, stepped
from acclimate.options import Decay, NonNegative, Positive
from acclimate.params import Params
from acclimate.sgd import Group, LocalSGD, Loss, trainable
from acclimate.training.fedavg import FedAvg, Global

NAME = "loss_net"
AS_RELEASED = LocalSGD(0.3, batch_size=64, steps=20, weight_decay=1e-4, clip=10.0, decay=0.99, decay_every=10)


@dataclass(frozen=True)
class FedTTA(FedAvg):
    """Meta-learn a base model ψ and an adaptation network φ, so that one step down ‖g(Z; φ)‖ makes ψ fit a client.

    The gradient goes through that step (second order): without it φ would learn nothing. `local.lr` is η_outer.
    A `local` of one's own is taken whole: what it does not name is not the released code's, but as everywhere.
    """

    exports = ("model", "loss_net", "inner_step")

    local: LocalSGD = AS_RELEASED
    inner_lr: NonNegative = 0.5  # η_inner
    adapt_lr: Positive = 0.01  # η_adapt
    adapt_momentum: Decay = 0.9
    preset: Literal["code", "plain"] = "code"
    weighting: Literal["examples", "uniform"] = "examples"

    def extend(self, net: nn.Module) -> nn.Module:
        head = head_of(net)[1]
        return Extended(net, **{NAME: LossNet(head.out_features, dtype=head.weight.dtype)})

    def loop(self) -> LocalSGD:
        """How ψ is trained."""
        bare = replace(self.local, weight_decay=0.0, clip=None, decay=1.0)
        return self.local if self.preset == "code" else bare

    def inner(self, round: int) -> InnerStep:
        """The step that adapts ψ, in a round."""
        loop = self.loop()
        return InnerStep(self.inner_lr * loop.faded(round), loop.weight_decay, loop.clip)

    def groups(self, net: nn.Module, loss: Loss) -> list[Group]:
        """ψ and φ, stepped together from one backward pass."""
        tensors, momentum = trainable(net), self.adapt_momentum if self.preset == "code" else 0.0
        phi = params.select(tensors, is_extra)
        return [Group(plain(tensors), loss), Group(phi, loss, lr=self.adapt_lr, momentum=momentum)]  # eqs. (8), (9)

    def meta_loss(self, net: nn.Module, w: Params, inner: InnerStep) -> Loss:
        """What a client goes down, from the model it was sent."""
        assert isinstance(net, Extended)
        g, psi = net.extra[NAME], plain(trainable(net))

        def loss(x: Tensor, y: Tensor) -> Tensor:
            z = net(x)  # Z = f(X; ψ), eq. (3)
            adapted = stepped(g(z), psi, inner)  # ψ̃ = ψ − η_inner ∇ ‖g(Z; φ)‖₂, eqs. (4), (5)
            return F.cross_entropy(functional_call(net, adapted, (x,)), y) + self.beside(net, w, x, z)  # eqs. (6), (7)

        return loss

    def beside(self, net: nn.Module, w: Params, x: Tensor, z: Tensor) -> Tensor | float:
        """What a variant adds to the loss, given the base logits."""
        return 0.0

    def client_update(self, server: Global, state: None, client: Client) -> tuple[Reply, None]:
        net = client.net(server.w)
        loss = self.meta_loss(net, server.w, self.inner(server.round))
        fit = self.loop().fit(self.groups(net, loss), client.train, client.rng, round=server.round)
        weight = len(client.train) if self.weighting == "examples" else 1.0
        return Reply(params.of(net), weight, {"loss": fit.loss}), None

    def export(self, server: Global, state: None, client: int) -> Knowledge:
        phi = {name.removeprefix(f"{EXTRA}.{NAME}."): t for name, t in server.w.items() if is_extra(name)}
        return {"model": plain(server.w), "loss_net": phi, "inner_step": self.inner(server.round)}
