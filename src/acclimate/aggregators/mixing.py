"""Aggregators that choose a row-stochastic matrix: row i says how client i's download is mixed of all uploads."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from torch import Tensor

from acclimate import params
from acclimate.contracts import Aggregator, Mix, Upload
from acclimate.params import Params


def mix(matrix: Tensor, uploads: Sequence[Upload]) -> list[Params]:
    """Downloads: row i of `matrix` times the uploads, tensor by tensor."""
    return [
        {name: params.combine(row, [upload.params[name] for upload in uploads]) for name in uploads[0].params}
        for row in matrix
    ]


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
        return Mix(mix(matrix, uploads), None, {"weights": matrix})
