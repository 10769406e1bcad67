"""SHOT: source hypothesis transfer by information maximisation (Liang et al., ICML 2020)."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate import params
from acclimate.adapters.on_batches import OnBatches
from acclimate.losses import entropy
from acclimate.models.head import features, head_of
from acclimate.models.norms import batch_statistics
from acclimate.options import NonNegative, Positive
from acclimate.params import Params


class SHOT(OnBatches):
    """Freeze the head and train the rest for predictions that are sure one by one and diverse together.

    As in ATP's comparison: one SGD step per batch on batch statistics, predictions before the step, carried over
    batches, and no pseudo-labels unless `beta` asks for them. They are of the batch, not of the whole target set;
    `centroids: atp` finds them as ATP's code does: nearest in Euclidean distance, not refined. A batch of one image
    is predicted with source statistics and teaches nothing, as does any batch if the head is the whole model.
    """

    def __init__(
        self,
        net: nn.Module,
        *,
        lr: Positive = 0.01,
        beta: NonNegative = 0.0,
        centroids: Literal["shot", "atp"] = "shot",
        head: str | None = None,
    ) -> None:
        super().__init__(net.requires_grad_(False))
        self.lr, self.beta, self.centroids = lr, beta, centroids
        name, self.head = head_of(net, head)
        self.trained: Params = {n: p for n, p in net.named_parameters() if n.rpartition(".")[0] != name}
        for tensor in self.trained.values():
            tensor.requires_grad_()

    def moving(self) -> Params:
        return self.trained

    def forward(self, x: Tensor) -> Tensor:
        if len(x) == 1 or not self.trained:
            return self.predict(x)
        with torch.enable_grad(), batch_statistics(self.net, len(x)):
            z, logits = features(self.net, x, self.head)
            loss = entropy(logits).mean() - diversity(logits)  # eq. (3): L_ent + L_div
            if self.beta > 0:
                labels = pseudo_labels(z.detach(), logits.detach(), self.centroids)
                loss = loss + self.beta * F.cross_entropy(logits, labels)  # eq. (7)
        params.descend(loss, self.trained, self.lr)
        return logits.detach()


def diversity(logits: Tensor) -> Tensor:
    """The entropy of the mean prediction p̂, −L_div; with ATP's 1e-9 inside the logarithm."""
    p = logits.softmax(-1).mean(0)
    return -(p * (p + 1e-9).log()).sum()


def pseudo_labels(z: Tensor, logits: Tensor, kind: Literal["shot", "atp"] = "shot") -> Tensor:
    """The nearest class centroid of each feature.

    Centroids are means weighted by the predictions; SHOT then takes the means of those nearest to each, and looks
    again. A class that lost all its images has no centroid any more.
    """
    p = logits.softmax(-1)
    centroid = (p / p.sum(0)).T @ z  # c_k^(0), eq. (4)
    if kind == "atp":
        return torch.cdist(z, centroid).argmin(-1)
    labels = _cosine(z, centroid).argmax(-1)  # eq. (5)
    members = F.one_hot(labels, logits.shape[1]).to(z.dtype)
    centroid = members.T @ z / members.sum(0).clamp(min=1).unsqueeze(1)  # c_k^(1), eq. (6)
    return _cosine(z, centroid).masked_fill(members.sum(0) == 0, -torch.inf).argmax(-1)


def _cosine(a: Tensor, b: Tensor) -> Tensor:
    return F.normalize(a, dim=1) @ F.normalize(b, dim=1).T
