"""FedICON at test time: the encoder tuned by contrast, without labels (Tan et al., FLData-Mining at KDD 2023, §3.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from acclimate import params
from acclimate.contracts import Adapter
from acclimate.contrast import Contrastive
from acclimate.models.head import features, head_names
from acclimate.options import Count, Positive
from acclimate.params import Params


class FedICON(Adapter):
    """Tune all but the head until two views of an image look alike and no other image does, then predict the images.

    What comes in is cut into shuffled batches, `epochs` times over. So a test in one slot (`batch_size: all`) is the
    paper's: the whole test set first, then its predictions; with smaller slots the encoder is tuned as images arrive.
    A batch of one image has nothing to differ from and is skipped. Batch norms keep their statistics. `picture` hands
    over what features were before and after, in two dimensions, predictions after every pass and the loss during it.
    """

    def __init__(
        self,
        net: nn.Module,
        *,
        lr: Positive = 0.01,
        epochs: Count = 1,
        batch_size: Count = 32,
        contrast: Contrastive = Contrastive(),
        picture: bool = False,
    ) -> None:
        super().__init__(net.requires_grad_(False))
        self.lr, self.epochs, self.batch_size, self.contrast, self.picture = lr, epochs, batch_size, contrast, picture
        head = head_names(net)
        self.encoder: Params = {name: tensor for name, tensor in net.named_parameters() if name not in head}  # θ
        for tensor in self.encoder.values():
            tensor.requires_grad_()

    def moving(self) -> Params:
        return self.encoder

    def adapt(self, x: Tensor) -> None:
        drawn = _Drawn(self.net, x) if self.picture else None
        for _ in range(self.epochs if self.encoder else 0):
            losses = []
            for rows in torch.randperm(len(x)).split(self.batch_size):
                if len(rows) > 1:
                    with torch.enable_grad():
                        loss = self.contrast.loss(self.net, x[rows])  # L_us, eq. (5)
                    params.descend(loss, self.encoder, self.lr)  # Algorithm 1, LocalTest
                    losses.append(loss.detach())
            if drawn is not None and losses:
                drawn.after(torch.stack(losses))
        if drawn is not None:
            self.figures = drawn.figures()


class _Drawn:
    """What features and predictions of a batch become, pass by pass."""

    def __init__(self, net: nn.Module, x: Tensor) -> None:
        self.net, self.x = net, x
        self.seen, self.losses = [self._look()], list[Tensor]()

    def after(self, losses: Tensor) -> None:
        """Another pass is over, with these losses of its batches; the very first is the only one before any step."""
        self.seen.append(self._look())
        self.losses += [losses.mean()] if self.losses else [losses[0], losses.mean()]

    def figures(self) -> dict[str, Tensor]:
        found = {"features": flattened(torch.stack([self.seen[0][0], self.seen[-1][0]]))}
        if self.losses:
            found |= {"predictions": torch.stack([predicted for _, predicted in self.seen])}
            found |= {"loss": torch.stack(self.losses)}
        return found

    @torch.no_grad()
    def _look(self) -> tuple[Tensor, Tensor]:
        parts = [features(self.net, part) for part in self.x.split(500)]
        return torch.cat([z.flatten(1) for z, _ in parts]), torch.cat([logits.argmax(-1) for _, logits in parts])


def flattened(z: Tensor) -> Tensor:
    """Features [2, images, numbers] in the plane in which they differ most, [2, images, 2]; the same plane for both.

    >>> corners = torch.tensor([[[0.0, 0, 0], [4, 0, 0], [0, 0, 2], [4, 0, 2]]])
    >>> flattened(corners).tolist()  # the second number is always zero, and left out
    [[[-2.0, -1.0], [2.0, -1.0], [-2.0, 1.0], [2.0, 1.0]]]
    """
    rows = z.flatten(0, 1).double()
    rows = rows - rows.mean(0)
    axes: Tensor = torch.linalg.eigh(rows.T @ rows)[1].flip(1)[:, :2]  # principal components, the largest first
    axes = axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()  # which way they point is free: up
    return (rows @ axes).view(*z.shape[:2], -1).float()
