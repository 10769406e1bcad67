"""L-DAWA: layers weighted by their angle to the global model (Rehman et al., ICCV 2023)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from acclimate.aggregators.mixing import combine, origin, pieces
from acclimate.contracts import Aggregator, Mix, Upload
from acclimate.params import Params


@dataclass(frozen=True)
class LDAWA(Aggregator[Params]):
    """w^l = Σ_k δ_k^l w_k^l / Σ_k δ_k^l, δ_k^l = cos(w_k^l, w_g^l), for each layer l; everybody gets w.

    The authors' code divides by the number of clients instead (`sum_to_one: false`), which shrinks a layer whenever a
    client turns: harmless in training, which regrows it, but not at test time. Normalised weights are never negative.
    A layer is a tensor; single numbers and zero vectors have no angle and count fully.
    """

    sum_to_one: bool = True

    def init(self, start: Sequence[Upload]) -> Params:
        return origin(start)

    def mix(self, state: Params, uploads: Sequence[Upload], slot: int) -> Mix:
        if not uploads:
            return Mix([], state)
        w, cosines = {}, []
        for name in uploads[0].params:
            layer = [upload.params[name] for upload in uploads]
            delta = cosine(layer, state.get(name))
            w[name] = combine(self._weights(delta), layer)
            cosines.append(delta)
        return Mix([w] * len(uploads), w, {"cosines": torch.stack(cosines)})  # [layers, K]

    def _weights(self, delta: Tensor) -> Tensor:
        if not self.sum_to_one:
            return delta / len(delta)
        positive = delta.clamp(min=0)
        return positive / positive.sum() if positive.any() else torch.full_like(delta, 1 / len(delta))


def cosine(layers: Sequence[Tensor], reference: Tensor | None) -> Tensor:
    """δ_k = cos(w_k, w_g) for each client's layer, one where there is no angle."""
    if reference is None or reference.dim() == 0:
        return torch.ones(len(layers), dtype=torch.float64)
    g = reference.double().flatten()
    inner, squares = torch.zeros(2, len(layers), dtype=torch.float64)
    for place, w in pieces(layers):
        inner += w @ g[place]
        squares += w.square().sum(1)
    lengths = squares.sqrt() * torch.linalg.vector_norm(g)
    return torch.where(lengths > 0, inner / lengths, 1.0).clamp(max=1.0)
