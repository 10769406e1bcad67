"""Aggregators that choose a row-stochastic matrix: row i says how client i's download is mixed of all uploads."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from acclimate import params
from acclimate.contracts import Aggregator, Mix, Upload
from acclimate.params import Params

PIECE = 2**14  # numbers of one tensor at a time, so that what is stacked and mixed of all clients stays in the cache


def mix(matrix: Tensor, uploads: Sequence[Upload]) -> list[Params]:
    """Downloads: row i of `matrix` times the uploads, tensor by tensor, in float64.

    Rows that are all equal, as FedAvg's, are one mixture: computed once, and the same tensors for everybody.
    """
    w = matrix.double()
    if len(w) > 1 and bool((w == w[0]).all()):
        return mix(w[:1], uploads) * len(w)
    downloads = [Params() for _ in w]
    for name in uploads[0].params:
        mixed = combine(w, [upload.params[name] for upload in uploads])
        for download, tensor in zip(downloads, mixed, strict=True):
            download[name] = tensor
    return downloads


def mean(many: Sequence[Params], weights: Iterable[float]) -> Params:
    """The weighted mean; weights need not sum to one. Integer entries are rounded.

    >>> mean([{"w": torch.tensor(1.0)}, {"w": torch.tensor(4.0)}], [2, 1])["w"]
    tensor(2.)
    """
    share = torch.tensor(list(weights), dtype=torch.float64)
    share = share / share.sum()
    return {name: combine(share, [one[name] for one in many]) for name in many[0]}


def origin(start: Sequence[Upload]) -> Params:
    """The mean of what all had before any adaptation, without what was still empty, as a label distribution is."""
    average = mean([upload.params for upload in start], [1.0] * len(start))
    return {name: tensor for name, tensor in average.items() if tensor.numel()}


def combine(weights: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """Σ_k weights[..., k] · tensors[k], computed in float64 and returned in the tensors' own type.

    >>> combine(torch.tensor([[0.5, 0.5], [1.0, 0.0]]), [torch.tensor([2.0]), torch.tensor([4.0])])
    tensor([[3.],
            [2.]])
    """
    w, like, rows = weights.double(), tensors[0], weights.shape[:-1]
    mixed = torch.empty((*rows, like.numel()), dtype=like.dtype)
    for place, many in pieces(tensors):
        mixed[..., place] = params.cast(w @ many, like.dtype)
    return mixed.view((*rows, *like.shape))


def pieces(tensors: Sequence[Tensor]) -> Iterator[tuple[slice, Tensor]]:
    """Tensors of one shape as rows of a matrix in float64, some columns at a time, and which columns."""
    flat = [tensor.detach().reshape(-1) for tensor in tensors]
    for start in range(0, len(flat[0]), PIECE):
        place = slice(start, start + PIECE)
        yield place, torch.stack([row[place] for row in flat]).double()


def products(uploads: Sequence[Upload], origin: Params) -> Tensor:
    """The K x K inner products of the uploads seen from `origin`, in float64; what it lacks is seen from zero."""
    total = torch.zeros(len(uploads), len(uploads), dtype=torch.float64)
    for name in uploads[0].params:
        start = origin[name].double().flatten() if name in origin else None
        for place, many in pieces([upload.params[name] for upload in uploads]):
            seen = many if start is None else many.sub_(start[place])
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
            between = torch.stack([row @ (m - center).square() for row, center in zip(w, w @ m, strict=True)])
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
