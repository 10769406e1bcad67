"""FedMD: heterogeneous federated learning by distillation on public data (Li & Wang, 2019).

Without the initial training on public data, which have no labels here. With the adapter `tent-upfl` it is close to the
heterogeneous TENT of Ye et al. (SDM 2024, §4.6), in whose code models adapt to public images before they send logits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate import params
from acclimate.contracts import Algorithm, Client, Knowledge, Newcomer, Replies, Reply, Task
from acclimate.errors import ConfigError
from acclimate.examples import Taught, Unlabelled
from acclimate.options import Count
from acclimate.params import Params
from acclimate.sgd import Group, LocalSGD, Loss, cross_entropy, trainable


class Consensus(NamedTuple):
    """What everybody thinks of the public images."""

    logits: Params  # by kind of model [images, classes]; none before the first round
    round: int


@dataclass(frozen=True)
class FedMD(Algorithm[Consensus, Params]):
    """Clients with models of any size learn from each other's mean logits on public images, and from their own data.

    A new client builds a model of its own size and learns from the same logits, `new_epochs` times.
    """

    personal: ClassVar[tuple[str, ...]] = ("model",)

    local: LocalSGD = LocalSGD(
        lr=0.1, batch_size=64, steps=20, weight_decay=1e-4, clip=10.0, decay=0.99, decay_every=10
    )
    public_batch: Count = 100
    new_epochs: Count = 2

    def loop(self) -> LocalSGD:
        return self.local

    def groups(self, net: nn.Module, loss: Loss) -> list[Group]:
        """What is trained."""
        return [Group(trainable(net), loss)]

    def revisits(self, net: nn.Module, round: int) -> Loss:
        """What a client goes down on its own data."""
        return cross_entropy(net)

    def digests(self, net: nn.Module, round: int) -> Loss:
        """What it goes down on public images."""
        return lambda x, taught: divergence(taught[:, 0], net(x))

    def answers(self, net: nn.Module, public: Unlabelled, round: int) -> Params:
        """Its logits on public images; the model may be changed."""
        return {"base": logits(net, public, self.public_batch)}

    def init(self, task: Task) -> Consensus:
        return Consensus({}, 0)

    def client_init(self, client: Client) -> Params:
        return client.start()

    def client_update(self, server: Consensus, w: Params, client: Client) -> tuple[Reply, Params]:
        net, public, round = client.net(w), public_images(client.task), server.round
        groups = [group._replace(velocity={}) for group in self.groups(net, self.digests(net, round))]
        self._digest(server, groups, public, 1)
        loss = self.revisits(net, round)
        fit = self.loop().fit([g._replace(loss=loss) for g in groups], client.train, client.rng, round=round)
        after = params.of(net)
        return Reply(self.answers(net.eval(), public, round), metrics={"loss": fit.loss}), after

    def expects(self, server: Consensus, task: Task) -> Params:
        like = next(task.build(None).parameters())
        return server.logits or {"base": like.new_zeros(len(public_images(task)), task.classes)}

    def server_update(self, server: Consensus, replies: Replies) -> Consensus:
        return Consensus(replies.mean(), server.round + 1)  # (1/N) Σ_i f(D_p | ψ^i)

    def welcome(self, released: Consensus, newcomer: Newcomer) -> Params:
        net = newcomer.net(params.of(newcomer.task.build(newcomer.id)))
        groups = self.groups(net, self.digests(net, released.round))
        self._digest(released, groups, public_images(newcomer.task), self.new_epochs)
        return params.of(net)

    def export(self, released: Consensus, w: Params | None, client: int) -> Knowledge:
        return {} if w is None else {"model": w}

    def _digest(self, server: Consensus, groups: list[Group], public: Unlabelled, epochs: int) -> None:
        """Learn from the consensus, where there is one."""
        if server.logits:
            lesson = Taught(public, torch.stack(list(server.logits.values()), 1))
            loop = replace(self.loop(), batch_size=self.public_batch, epochs=epochs, steps=None)
            loop.fit(groups, lesson, None, round=server.round)


def divergence(teacher: Tensor, student: Tensor) -> Tensor:
    """KL(teacher ‖ student) of two batches of logits."""
    return F.kl_div(student.log_softmax(-1), teacher.log_softmax(-1), reduction="batchmean", log_target=True)


@torch.no_grad()
def logits(net: nn.Module, public: Unlabelled, size: int) -> Tensor:
    """A model's logits on all public images."""
    return torch.cat([net(x) for x in public.batches(size)])


def public_images(task: Task) -> Unlabelled:
    """The images that everybody has, or a message."""
    if task.public is None:
        raise ConfigError(["it needs public images, and this scenario has none; in 'upfl': public: 0.1"], "a phase")
    return task.public
