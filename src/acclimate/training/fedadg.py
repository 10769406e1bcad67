"""FedADG: federated adversarial domain generalisation (Zhang et al., 2021).

The UPFL paper gives the size of the noise, and sizes of features that are not those of the models it says all methods
share; here features are what enters the head. Adversarial losses are least squares: the discriminator gives 1 to the
reference and 0 to features, the model goes down (1 − D(F))². The generator goes down D(G)², so that the reference comes
to meet the features; two implementations that we have read have the same roles but (1 − D(G))² there, and no gradient
that reaches the generator. All four parts are averaged.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate import params
from acclimate.contracts import Client, Knowledge, Reply
from acclimate.models.extended import Extended, plain
from acclimate.models.head import features, head_of
from acclimate.options import Count, Positive, Share
from acclimate.sgd import Group, trainable
from acclimate.training.fedavg import FedAvg, Global


@dataclass(frozen=True)
class FedADG(FedAvg):
    """Pull all clients' features, class by class, to a reference distribution that a generator learns with them.

    On each batch the model learns to classify and to be taken for the reference, then the discriminator to tell the
    two apart, then the generator to be taken for features.
    """

    weight: Share = 0.15  # of the adversarial loss; the rest is the cross-entropy's
    noise: Count = 10
    hidden: Count = 128  # of generator and discriminator
    adversary_lr: Positive = 0.01

    def extend(self, net: nn.Module) -> nn.Module:
        head = head_of(net)[1]
        features, classes, kind = head.in_features, head.out_features, head.weight.dtype

        def two_layers(inputs: int, outputs: int, *last: nn.Module) -> nn.Module:
            first, second = nn.Linear(inputs, self.hidden, dtype=kind), nn.Linear(self.hidden, outputs, dtype=kind)
            return nn.Sequential(first, nn.ReLU(), second, *last)

        generator = two_layers(self.noise + classes, features, nn.ReLU())  # features are what a ReLU lets through
        return Extended(net, generator=generator, discriminator=two_layers(features + classes, 1, nn.Sigmoid()))

    def groups(self, net: nn.Module) -> list[Group]:
        """Model, discriminator and generator, each with its loss, stepped in this order."""
        assert isinstance(net, Extended)
        head, g, d = head_of(net)[1], net.extra["generator"], net.extra["discriminator"]

        def judged(f: Tensor, y: Tensor) -> Tensor:
            score: Tensor = d(torch.cat([f, F.one_hot(y, head.out_features).to(f.dtype)], 1))  # D(· | y)
            return score

        def reference(y: Tensor, f: Tensor) -> Tensor:
            noise = torch.randn(len(y), self.noise, dtype=f.dtype)
            drawn: Tensor = g(torch.cat([noise, F.one_hot(y, head.out_features).to(f.dtype)], 1))  # G(noise | y)
            return drawn

        def telling(x: Tensor, y: Tensor) -> Tensor:
            f = features(net, x, head)[0].flatten(1).detach()
            return (1 - judged(reference(y, f).detach(), y)).square().mean() + judged(f, y).square().mean()

        def classifying(x: Tensor, y: Tensor) -> Tensor:
            f, logits = features(net, x, head)
            taken = (1 - judged(f.flatten(1), y)).square().mean()
            return (1 - self.weight) * F.cross_entropy(logits, y) + self.weight * taken

        def referring(x: Tensor, y: Tensor) -> Tensor:
            return judged(reference(y, head.weight), y).square().mean()

        tensors, slow = trainable(net), self.adversary_lr
        d_own = {name: tensor for name, tensor in tensors.items() if name.startswith("extra.discriminator.")}
        g_own = {name: tensor for name, tensor in tensors.items() if name.startswith("extra.generator.")}
        return [
            Group(plain(tensors), classifying),
            Group(d_own, telling, lr=slow),
            Group(g_own, referring, lr=slow),
        ]

    def client_update(self, server: Global, state: None, client: Client) -> tuple[Reply, None]:
        net = client.net(server.w)
        fit = self.local.fit(self.groups(net), client.train, client.rng, round=server.round)
        return Reply(params.of(net), len(client.train), {"loss": fit.loss}), None

    def export(self, server: Global, state: None, client: int) -> Knowledge:
        return {"model": plain(server.w)}
