"""EATA's Fisher information of scales and shifts, from source validation images (Niu et al., ICML 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate import params
from acclimate.contracts import Algorithm, Client, Knowledge, Replies, Reply, Task
from acclimate.models.norms import NORMS, affine
from acclimate.options import Count
from acclimate.params import Params


class Sums(NamedTuple):
    """Sums over images, or over batches of them."""

    squares: Params  # of gradients
    terms: Tensor  # how many


@dataclass(frozen=True)
class EATA(Algorithm[Sums, None]):
    """Sum squared gradients of the loss on the model's own predictions; labels are not used, images do not travel.

    In eval mode, image by image as the paper writes it; its code squares the mean gradient of batches of 64, on batch
    statistics, of test images without shift (`batch_size: 64` squares the mean over batches too).
    """

    exports = ("fisher",)
    batch_size: Count = 1

    def init(self, task: Task) -> Sums:
        net = task.build(None)
        layers: dict[str, nn.Module] = {
            name: module for name, module in net.named_modules() if isinstance(module, NORMS)
        }
        zeros = {name: torch.zeros_like(tensor, dtype=torch.float64) for name, tensor in affine(layers).items()}
        return Sums({name: tensor.detach() for name, tensor in zeros.items()}, torch.tensor(0.0, dtype=torch.float64))

    def client_update(self, total: Sums, state: None, client: Client) -> tuple[Reply, None]:
        net = client.net(client.known["model"]).eval()
        tensors = dict(net.named_parameters())
        wanted = {name: tensors[name] for name in total.squares}
        squares, count = params.zeros_like(total.squares), 0
        for images, _ in client.validation.batches(500):
            for x in images.split(self.batch_size):
                if not wanted:
                    break
                logits = net(x)
                loss = F.cross_entropy(logits, logits.argmax(-1))  # ŷ, the model's own
                found = params.gradients(loss, wanted)
                squares = {name: s + found[name].double().square() for name, s in squares.items()}
                count += 1
        return Reply(Sums(squares, torch.tensor(count, dtype=torch.float64))), None

    def server_update(self, total: Sums, replies: Replies) -> Sums:
        new: Sums = replies.sum()
        return Sums(params.add(total.squares, new.squares), total.terms + new.terms)

    def export(self, total: Sums, state: None, client: int) -> Knowledge:
        n = total.terms.clamp(min=1)
        return {"fisher": {name: square / n for name, square in total.squares.items()}}  # ω(θ_i), eq. (9)
