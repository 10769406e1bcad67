"""Aggregators that choose a row-stochastic matrix: row i says how client i's download is mixed of all uploads."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from acclimate import params
from acclimate.contracts import Aggregator, Mix, Upload
from acclimate.params import Params


def mix(matrix: Tensor, uploads: Sequence[Upload]) -> list[Params]:
    """Downloads: row i of `matrix` times the uploads, tensor by tensor, in float64.

    Rows that are all equal, as FedAvg's, are one mixture: computed once, and the same tensors for everybody.
    """
    w = matrix.double()
    if len(w) > 1 and bool((w == w[0]).all()):
        return mix(w[:1], uploads) * len(w)
    downloads = [Params() for _ in w]
    for name, like in uploads[0].params.items():
        mixed = torch.tensordot(w, torch.stack([upload.params[name] for upload in uploads]).double(), dims=1)
        for download, tensor in zip(downloads, mixed, strict=True):
            download[name] = params.cast(tensor, like.dtype)
    return downloads


def products(uploads: Sequence[Upload], origin: Params) -> Tensor:
    """The K x K inner products of the uploads seen from `origin`, in float64; what it lacks is seen from zero."""
    total = torch.zeros(len(uploads), len(uploads), dtype=torch.float64)
    for name in uploads[0].params:
        stacked = torch.stack([upload.params[name] for upload in uploads]).double().reshape(len(uploads), -1)
        seen = stacked.sub_(origin[name].double().flatten()) if name in origin else stacked
        total.addmm_(seen, seen.T)
    return total


def drawn(matrix: Tensor, uploads: Sequence[Upload]) -> dict[str, Tensor]:
    """The matrix as a figure: `clients` are its rows, `columns` all whose uploads were mixed."""
    ids = torch.tensor([upload.client for upload in uploads])
    return {"weights": matrix, "clients": ids[: len(matrix)], "columns": ids}


def total_variances(matrix: Tensor, uploads: Sequence[Upload]) -> list[Params]:
    """Every `running_var` v_j of the uploads by the law of total variance, Σ_j W_ij (v_j + (m_j − m̄_i)²).

    The means m_j are the tensor `running_mean` of the same layer, and m̄_i = Σ_j W_ij m_j.
    """
    w, downloads = matrix.double(), [Params() for _ in matrix]
    for name, like in uploads[0].params.items():
        mean_of = f"{name.removesuffix('running_var')}running_mean"
        if name.endswith("running_var") and mean_of in uploads[0].params:
            m = torch.stack([upload.params[mean_of].double() for upload in uploads])
            v = torch.stack([upload.params[name].double() for upload in uploads])
            between = torch.stack([row @ (m - mean).square() for row, mean in zip(w, w @ m, strict=True)])
            for download, variance in zip(downloads, w @ v + between, strict=True):
                download[name] = params.cast(variance, like.dtype)
    return downloads


class Matrix(Aggregator[None]):
    """An aggregator that is nothing but its matrix."""

    @abstractmethod
    def weights(self, uploads: Sequence[Upload]) -> Tensor:
        """The K x K matrix; rows sum to one."""

    def init(self, start: Sequence[Upload]) -> None:
        return None

    def mix(self, state: None, uploads: Sequence[Upload], slot: int) -> Mix:
        if not uploads:
            return Mix([], None)
        matrix = self.weights(uploads)
        return Mix(mix(matrix, uploads), None, drawn(matrix, uploads))
