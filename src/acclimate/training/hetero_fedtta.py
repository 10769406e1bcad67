"""HeteroFedTTA: FedTTA for devices with models of different sizes (Ye et al., SDM 2024, §3.4, Algorithm 2).

Models are distilled on public images as in FedMD. Personalised logits are those of the model adapted to the public
images, as in the released code (E15); divergences are KL(teacher ‖ student), as there (E16).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn
from torch.func import functional_call

from acclimate import params
from acclimate.contracts import Knowledge, Task
from acclimate.examples import Unlabelled
from acclimate.models.extended import EXTRA, Extended, is_extra, plain
from acclimate.models.loss_net import stepped
from acclimate.options import Decay, NonNegative, Positive
from acclimate.params import Params
from acclimate.sgd import Group, LocalSGD, Loss, trainable
from acclimate.training.fedmd import Consensus, FedMD, divergence, logits
from acclimate.training.fedtta import NAME, FedTTA


@dataclass(frozen=True)
class HeteroFedTTA(FedMD):
    """Distil base models and adaptation networks apart: `weight` (λ) is the base models' part of the loss.

    With λ = 0 it is plain distillation of personalised models. All adaptation networks have 32 units a layer.
    """

    exports = ("model", "loss_net", "inner_step")
    personal: ClassVar[tuple[str, ...]] = ("model", "loss_net")

    inner_lr: NonNegative = 0.5  # η_inner
    adapt_lr: Positive = 0.005  # η_adapt
    adapt_momentum: Decay = 0.9
    preset: Literal["code", "plain"] = "code"
    weight: NonNegative = 0.8  # λ

    @property
    def meta(self) -> FedTTA:
        """What a client does on its own data."""
        return FedTTA(self.local, self.inner_lr, self.adapt_lr, self.adapt_momentum, self.preset)

    def extend(self, net: nn.Module) -> nn.Module:
        return self.meta.extend(net)

    def loop(self) -> LocalSGD:
        return self.meta.loop()

    def groups(self, net: nn.Module, loss: Loss) -> list[Group]:
        return self.meta.groups(net, loss)

    def revisits(self, net: nn.Module, round: int) -> Loss:
        return self.meta.meta_loss(net, {}, self.meta.inner(round))

    def digests(self, net: nn.Module, round: int) -> Loss:
        assert isinstance(net, Extended)
        g, psi, inner = net.extra[NAME], plain(trainable(net)), self.meta.inner(round)

        def loss(x: Tensor, taught: Tensor) -> Tensor:
            z = net(x)
            adapted = functional_call(net, stepped(g(z), psi, inner), (x,))  # f(x | ψ̃ˢ)
            return divergence(taught[:, 1], adapted) + self.weight * divergence(taught[:, 0], z)  # eq. (14)

        return loss

    def answers(self, net: nn.Module, public: Unlabelled, round: int) -> Params:
        assert isinstance(net, Extended)
        g, psi, base = net.extra[NAME], plain(trainable(net)), logits(net, public, self.public_batch)
        slopes, count = params.zeros_like(psi), 0
        for x in public.batches(self.public_batch):  # batch by batch, for memory: public images are many
            slopes, count = params.add(slopes, params.gradients(g(net(x)), psi)), count + 1
        params.step(psi, {name: slope / count for name, slope in slopes.items()}, *self.meta.inner(round))
        return {"base": base, "personal": logits(net, public, self.public_batch)}

    def expects(self, server: Consensus, task: Task) -> Params:
        logits = super().expects(server, task)["base"]
        return {"base": logits, "personal": logits}

    def export(self, released: Consensus, w: Params | None, client: int) -> Knowledge:
        known: Knowledge = {"inner_step": self.meta.inner(released.round)}
        if w is None:
            return known
        phi = {name.removeprefix(f"{EXTRA}.{NAME}."): tensor for name, tensor in w.items() if is_extra(name)}
        return {**known, "model": plain(w), "loss_net": phi}
