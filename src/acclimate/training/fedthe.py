"""FedTHE's training: a shared model for balanced classes and personal heads beside it (Jiang & Lin, ICLR 2023)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from acclimate.contracts import Client
from acclimate.training.btfl import BTFL


@dataclass(frozen=True)
class FedTHE(BTFL):
    """The shared model learns with balanced softmax: log (n_c + 1) of the client's classes are added to its logits.

    Personal heads are BTFL's, which took them from here: plain, on the frozen model that was sent.
    """

    def prior(self, client: Client) -> Tensor:
        return (torch.bincount(client.train.y, minlength=client.task.classes) + 1).log()
