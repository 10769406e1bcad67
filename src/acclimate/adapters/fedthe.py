"""FedTHE: a test-time ensemble of a personal and the global head (Jiang & Lin, ICLR 2023)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate import params
from acclimate.adapters.memo import marginal_entropy
from acclimate.contracts import Adapter
from acclimate.data.augment import crops, mirrored
from acclimate.losses import entropy
from acclimate.models.head import features, head_of
from acclimate.options import Count, Positive, Share, Whole
from acclimate.params import Params
from acclimate.trees import Nest

_OWN = "personal head"  # among a model's tensors


class FedTHE(Adapter):
    """For each image, learn the weight e of the global head by a few steps of Adam, and predict with both heads' mix.

    Where both heads agree the mix is to be sure; where they do not, the head wins whose side's mean features are nearer
    to the image's, mixed with a running mean of those before. `reference_ema` leaves the first image of every batch out
    of that mean, as the released code does: with batches of one image it never moves. `tune_steps` makes it FedTHE+:
    with its e, each image then moves all parameters by steps of MEMO, from the model as it was trained.
    """

    needs = ("head", "means")

    def __init__(
        self,
        net: nn.Module,
        *,
        head: Tensor,
        means: dict[str, Tensor],
        lr: Positive = 0.1,
        steps: Count = 20,
        alpha: Share = 0.1,
        beta: Share = 0.1,
        reference_ema: bool = False,
        tune_steps: Whole = 0,
        tune_lr: Positive = 5e-4,
        copies: Count = 16,
    ) -> None:
        super().__init__(net.requires_grad_(False))
        self.w_p, self.w_g = head, head_of(net)[1]
        self.h_l, self.h_g = means["local"].to(head.dtype), means["global"].to(head.dtype)
        self.lr, self.steps, self.alpha, self.beta = lr, steps, alpha, beta
        self.reference_ema, self.tune_steps, self.tune_lr, self.copies = reference_ema, tune_steps, tune_lr, copies
        self.history = torch.zeros(0)  # the running mean of features; empty before the first image

    def forward(self, x: Tensor) -> Tensor:
        logits, self.history = self._ensemble(x)
        return logits

    def adapt(self, x: Tensor) -> None:
        with torch.no_grad():
            self.history = self._histories(features(self.net, x, self.w_g)[0])[-1]

    def predict(self, x: Tensor) -> Tensor:
        return self._ensemble(x)[0]

    def state(self) -> Nest:
        return {"history": self.history.clone()}

    def load_state(self, state: Nest) -> None:
        self.history = state["history"].clone()

    def _ensemble(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Logits of a batch, and the running mean after it."""
        with torch.no_grad():
            z, g = features(self.net, x, self.w_g)
            p = F.linear(z, self.w_p)
        histories = self._histories(z)
        similarity = F.cosine_similarity(g.softmax(1), p.softmax(1), eps=1e-6)  # λ_s
        e = self._weights(self.beta * z + (1 - self.beta) * histories, g, p, similarity)
        self.figures = {"e": e, "similarity": similarity}
        return torch.stack(list(map(self._tuned, x, e))) if self.tune_steps else p.lerp(g, e[:, None]), histories[-1]

    def _histories(self, z: Tensor) -> Tensor:
        """h_i = α z_i + (1 − α) h_{i−1}, from h_0 = z_0."""
        rows = [self.history] if len(self.history) else []
        for i, feature in enumerate(z):
            skipped = self.reference_ema and i == 0
            rows.append(feature if not rows else rows[-1] if skipped else rows[-1].lerp(feature, self.alpha))
        return torch.stack(rows[-len(z) :])

    def _weights(self, h: Tensor, g: Tensor, p: Tensor, similarity: Tensor) -> Tensor:
        """The weight e of the global head after all steps, for each image."""
        far_g, far_l = (h - self.h_g).norm(dim=1), (h - self.h_l).norm(dim=1)
        w = torch.ones(len(h), 2, dtype=h.dtype, requires_grad=True)
        optimizer = torch.optim.Adam([w], lr=self.lr)
        with torch.enable_grad():
            for _ in range(self.steps):
                e = w.softmax(1)[:, 0]
                sure, near = entropy(p.lerp(g, e[:, None])), e * far_g + (1 - e) * far_l  # L_EM and L_FA
                loss = similarity * sure + (1 - similarity) * near
                (w.grad,) = torch.autograd.grad(loss.mean(), [w])
                if w.grad.norm() < 1e-5:
                    break
                optimizer.step()
        return w.detach().softmax(1)[:, 0]

    def _tuned(self, image: Tensor, e: Tensor) -> Tensor:
        """FedTHE+: logits of one image after steps down the marginal entropy of its copies, e held."""
        tensors = {**dict(self.net.named_parameters()), _OWN: self.w_p}
        for _ in range(self.tune_steps):
            tensors = {name: tensor.detach().clone().requires_grad_() for name, tensor in tensors.items()}
            with torch.enable_grad():
                copies = crops(mirrored(image, 4).expand(self.copies, -1, -1, -1), image.shape[-2:], flip=True)
                loss = marginal_entropy(self._mix_of(copies, e, tensors))
            params.descend(loss, tensors, self.tune_lr)
        return self._mix_of(image.unsqueeze(0), e, tensors)[0].detach()

    def _mix_of(self, x: Tensor, e: Tensor, tensors: Params) -> Tensor:
        z, g = features(self.net, x, self.w_g, params.select(tensors, lambda name: name != _OWN))
        return F.linear(z, tensors[_OWN]).lerp(g, e)
