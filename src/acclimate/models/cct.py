"""The Compact Convolutional Transformer CCT-4/3x2 (Hassani et al., 2021, arXiv 2104.05704)."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acclimate.errors import UnsupportedModel
from acclimate.options import Count


class Encoder(nn.Module):
    """A transformer layer as in ViT: self-attention and a perceptron, each after its norm, beside the identity."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.project = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.expand = nn.Linear(width, inner)
        self.contract = nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.project(self.attend(self.norm1(x)))
        y: Tensor = self.contract(F.gelu(self.expand(self.norm2(x))))
        return x + y

    def attend(self, x: Tensor) -> Tensor:
        """softmax(QKᵀ / √d) V per head. Written out, because FedTTA differentiates it twice."""
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        y: Tensor = scores.softmax(-1) @ v
        return y.transpose(1, 2).flatten(2)


class CCT(nn.Module):
    """Two 3x3 convolutions make tokens, transformer layers mix them, and sequence pooling weighs them.

    482,123 parameters on 3x32x32 images and 10 classes. Each convolution (to 64 and to `width` channels, no
    bias) has ReLU and a 3x3 pool that halves the image. There is no ReLU before the head, so features may be
    negative, which BTFL's binary codes do not allow. Neither dropout nor stochastic depth, which the authors
    train with; `positions` are theirs, learnt or sines. Images need at least 4 pixels a side.
    """

    def __init__(
        self,
        classes: int,
        shape: tuple[int, int, int],
        normalise: nn.Module,
        *,
        layers: Count = 4,
        heads: Count = 2,
        width: Count = 128,
        mlp_ratio: Count = 1,
        positions: Literal["learnable", "sine"] = "learnable",
    ) -> None:
        super().__init__()
        channels, rows, columns = shape
        if min(rows, columns) < 4:
            raise UnsupportedModel(f"cct needs images of at least 4x4 pixels, found {rows}x{columns}")
        if width % heads or width % 2:
            raise UnsupportedModel(f"cct needs an even width that its {heads} heads divide, found {width}")
        tokens = math.ceil(rows / 4) * math.ceil(columns / 4)
        self.normalise = normalise
        self.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(64, width, 3, padding=1, bias=False)
        if positions == "learnable":
            self.positions = nn.Parameter(torch.empty(tokens, width))
            nn.init.trunc_normal_(self.positions, std=0.2)
        else:
            self.register_buffer("positions", _sines(tokens, width), persistent=False)
        self.encoders = nn.Sequential(*(Encoder(width, heads, mlp_ratio * width) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.pool = nn.Linear(width, 1)
        self.head = nn.Linear(width, classes)
        for convolution in (self.conv1, self.conv2):
            nn.init.kaiming_normal_(convolution.weight)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(self.normalise(x))), 3, 2, 1)
        x = F.max_pool2d(F.relu(self.conv2(x)), 3, 2, 1)
        x = self.norm(self.encoders(x.flatten(2).transpose(1, 2) + self.positions))
        weights = self.pool(x).softmax(1)  # sequence pooling: softmax(g(x)ᵀ) x
        logits: Tensor = self.head((weights * x).sum(1))
        return logits


def _sines(tokens: int, width: int) -> Tensor:
    """Sine and cosine of t / 10000^(2i / width) at even and odd places 2i, 2i + 1 of token t."""
    angles = torch.arange(tokens).unsqueeze(1) / 10000 ** (torch.arange(0, width, 2) / width)
    return torch.stack((angles.sin(), angles.cos()), 2).flatten(1)
