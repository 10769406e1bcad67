"""ODPFL-HN: on-demand unlabelled personalised federated learning by a hypernetwork (Amosy et al., 2021).

The UPFL paper gives the size of the embedding (32) and the rates; the choice of all else is told where it is made.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from acclimate import params
from acclimate.contracts import Algorithm, Client, Knowledge, Newcomer, Replies, Reply, Task
from acclimate.options import Count, Positive
from acclimate.params import Params, clipped
from acclimate.sgd import LocalSGD


class State(NamedTuple):
    """The networks; the hypernetwork makes no batch statistics, so they are averaged."""

    nets: Params  # encoder and body of the hypernetwork
    last: Tensor  # its last layer [model, hidden], as large as `hidden` models; zero at first
    bias: Params  # of the last layer, as a model: where everybody starts
    statistics: Params
    round: int


class Update(NamedTuple):
    """What a client sends: it computes all gradients, that of the last layer as its two factors."""

    nets: Params
    delta: Params  # Δθ = θ − θ̃
    hidden: Tensor
    statistics: Params


class Nets(nn.Module):
    """All but the hypernetwork's last layer, images in, a client's vector out: two perceptrons of our choice."""

    def __init__(self, shape: tuple[int, ...], embedding: int, hidden: int) -> None:
        super().__init__()
        first = nn.Linear(math.prod(shape), 200)
        self.encoder = nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Linear(200, embedding))
        self.body = nn.Sequential(nn.Linear(embedding, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.body(self.encoder(x).mean(0))  # the embedding is a mean over images
        return found


@dataclass(frozen=True)
class ODPFLHN(Algorithm[State, Tensor]):
    """A client encoder and a hypernetwork, which makes a model for whoever shows it images without labels."""

    keeps = True
    personal = ("model",)
    revision: ClassVar[int] = 1  # nothing was clipped
    local: LocalSGD = LocalSGD(lr=0.3, steps=20, batch_size=64)
    encoder_lr: Positive = 0.5  # the server's, as the next: they do not fall, and there is no weight decay
    hyper_lr: Positive = 0.5
    embedding: Count = 32
    hidden: Count = 100
    clip: Positive = 50.0  # of the mean gradient of all networks, as pFedHN's code: otherwise training may explode

    def init(self, task: Task) -> State:
        start, nets = task.start(), Nets(task.shape, self.embedding, self.hidden)
        bias = {name: start.pop(name) for name, _ in task.build(None).named_parameters()}
        return State(params.of(nets), torch.zeros(len(_flat(bias)), self.hidden), bias, start, 0)

    def client_init(self, client: Client) -> Tensor:
        return torch.zeros(self.hidden)  # h: a source client's model is made of that of before the server's last step

    def client_update(self, server: State, state: Tensor, client: Client) -> tuple[Reply, Tensor]:
        nets = params.load(Nets(client.task.shape, self.embedding, self.hidden), server.nets)
        hidden = nets(client.train.x)
        net = client.net(self._model(server, hidden.detach()))  # θ = HN(v)
        before = {name: params.copy(tensor) for name, tensor in net.named_parameters()}
        fit = self.local.fit(net, client.train, client.rng, round=server.round)  # θ̃
        after = params.of(net)
        delta = {name: tensor - after[name] for name, tensor in before.items()}  # Δθ
        behind = server.last.T @ _flat(delta)  # (∂θ/∂h)ᵀ Δθ
        found = params.gradients((hidden * behind).sum(), dict(nets.named_parameters()))
        update = Update(found, delta, hidden.detach(), {name: after[name] for name in server.statistics})
        return Reply(update, len(client.train), {"loss": fit.loss}), hidden.detach()

    def expects(self, server: State, task: Task) -> Update:
        return Update(server.nets, server.bias, server.last[0], server.statistics)

    def server_update(self, server: State, replies: Replies) -> State:
        mean: Update = replies.mean()
        kept = [(reply.weight / replies.weight, reply.update) for _, reply in replies.items()]
        deltas, hidden = torch.stack([_flat(u.delta) for _, u in kept]), torch.stack([n * u.hidden for n, u in kept])
        last = deltas.T @ hidden  # ∇ = Σ_k (n_k / n) Δθ_k h_kᵀ
        bias = {f"bias.{name}": delta for name, delta in mean.delta.items()}
        found = clipped({**mean.nets, "last": last, **bias}, self.clip)
        rate = {"encoder": self.encoder_lr, "body": self.hyper_lr}
        nets = {name: w - rate[name.partition(".")[0]] * found[name] for name, w in server.nets.items()}
        bias = {name: b - self.hyper_lr * found[f"bias.{name}"] for name, b in server.bias.items()}
        return State(nets, server.last - self.hyper_lr * found["last"], bias, mean.statistics, server.round + 1)

    def welcome(self, released: State, newcomer: Newcomer) -> Tensor:
        nets = params.load(Nets(newcomer.task.shape, self.embedding, self.hidden), released.nets)
        return nets(newcomer.x).detach()  # type: ignore[no-any-return]

    def export(self, released: State, hidden: Tensor | None, client: int) -> Knowledge:
        return {} if hidden is None else {"model": self._model(released, hidden)}

    def _model(self, server: State, hidden: Tensor) -> Params:
        """θ, the last layer's output as a model."""
        made = (server.last @ hidden).split([tensor.numel() for tensor in server.bias.values()])
        theta = {name: start + own.view_as(start) for (name, start), own in zip(server.bias.items(), made, strict=True)}
        return {**theta, **server.statistics}


def _flat(tensors: Params) -> Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors.values()])
