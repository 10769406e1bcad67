"""FedRoD: one model with a generic and a personal head (Chen & Chao, ICLR 2022, Algorithm 1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.contracts import Client, Knowledge
from acclimate.models.extended import EXTRA, Extended, is_extra, plain
from acclimate.models.head import features, head_of
from acclimate.params import Params
from acclimate.sgd import Fit, Group, trainable
from acclimate.training.fedavg import Global
from acclimate.training.fedper import FedPer


@dataclass(frozen=True)
class FedRoD(FedPer):
    """The generic model learns from balanced classes and is averaged; a personal head adds what this client needs.

    The personal head sees features and generic logits as they are and sends no gradient back. It starts at zero, so
    that a client begins with the generic model. Both heads are linear in the same features, so the personal model is
    the plain one with the sum of both as its head; whoever never trained has the generic one.
    """

    def extend(self, net: nn.Module) -> nn.Module:
        name, head = head_of(net)
        personal = nn.Linear(head.in_features, head.out_features, head.bias is not None, dtype=head.weight.dtype)
        for tensor in personal.parameters():
            nn.init.zeros_(tensor)
        return Extended(net, **{name.replace(".", "/"): personal})  # beside the head it adds to

    def stays(self, net: nn.Module) -> set[str]:
        return {name for name in net.state_dict() if is_extra(name)}

    def fit(self, net: nn.Module, client: Client, round: int) -> Fit:
        assert isinstance(net, Extended)
        (personal,) = net.extra.values()
        prior = torch.bincount(client.train.y, minlength=client.task.classes).log()  # log n_c of this client

        def loss(x: Tensor, y: Tensor) -> Tensor:
            z, g = features(net, x)
            balanced = F.cross_entropy(g + prior, y)  # the generic model: balanced softmax
            return balanced + F.cross_entropy(g.detach() + personal(z.detach()), y)  # the personal head: plain

        return self.local.fit([Group(trainable(net), loss)], client.train, client.rng, round=round)

    def export(self, server: Global, own: Params | None, client: int) -> Knowledge:
        beside = {name.removeprefix(f"{EXTRA}.").replace("/", "."): tensor for name, tensor in (own or {}).items()}
        return {"model": {name: w + beside[name] if name in beside else w for name, w in plain(server.w).items()}}
