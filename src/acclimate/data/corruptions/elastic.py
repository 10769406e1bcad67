"""Elastic transform: a random affine map, then small displacements that vary smoothly."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate.data.corruptions.draws import Draws
from acclimate.data.corruptions.filters import mirrored_gaussian
from acclimate.data.corruptions.levels import to_bytes
from acclimate.data.corruptions.tables import Parameters


def elastic_transform(images: Tensor, parameters: Parameters, draws: Draws) -> Tensor:
    """An affine map of three shifted points, then displacements α G(σ) of uniform noise."""
    side = images.shape[-1]
    shifts = (draws.uniform(3, 2) * 2 - 1) * parameters[2]
    fields = draws.uniform(2, side, side) * 2 - 1 if parameters[0] else None
    return deform(images, parameters, shifts, fields)


def deform(images: Tensor, parameters: Parameters, shifts: Tensor, fields: Tensor | None) -> Tensor:
    """Shifts [B, 3, 2] of three points (x, y) in pixels; fields [B, 2, S, S], x then y, uniform on (−1, 1)."""
    alpha, sigma, _ = parameters
    side = images.shape[-1]
    source = _affine_source(side, shifts.double())
    x = _sample(images.double(), source.mul_(2 / (side - 1)).sub_(1), aligned=True)
    if alpha and fields is not None:
        place = torch.arange(side, dtype=torch.float64)
        moved = mirrored_gaussian(fields.double(), sigma).mul_(alpha)
        source = torch.stack([moved[:, 0] + place, moved[:, 1] + place[:, None]], 3)
        x = _sample(x, source.mul_(2).add_(1).div_(side).sub_(1), aligned=False)
    return to_bytes(x.float())  # rounded first: values a hair below an integer are that integer


def _sample(x: Tensor, grid: Tensor, aligned: bool) -> Tensor:
    """Bilinear; the border mirrors about the centres of the edge pixels (aligned), else about their outer edges."""
    return F.grid_sample(x, grid, "bilinear", "reflection", align_corners=aligned)


def _affine_source(side: int, shifts: Tensor) -> Tensor:
    """[B, S, S, 2]: for each pixel (x, y) the place M⁻¹(x, y), where M maps the points P to P' = P + shifts.

    P = (c+q, c+q), (c+q, c−q), (c−q, c−q) with c = S // 2, q = S // 3. In the frame of P'₁ with axes P'₀ − P'₁ and
    P'₂ − P'₁, M⁻¹ is P₁ + s (P₀ − P₁) + t (P₂ − P₁).
    """
    high, low = side // 2 + side // 3, side // 2 - side // 3
    points = torch.tensor([[high, high], [high, low], [low, low]], dtype=torch.float64)
    moved = (points + shifts)[:, :, :, None, None]  # [B, 3, 2, 1, 1]
    (ax, ay), (bx, by) = (moved[:, 0] - moved[:, 1]).unbind(1), (moved[:, 2] - moved[:, 1]).unbind(1)
    place = torch.arange(side, dtype=torch.float64)
    x, y = place - moved[:, 1, 0], place[:, None] - moved[:, 1, 1]
    determinant = ax * by - ay * bx
    s, t = (x * by - y * bx) / determinant, (y * ax - x * ay) / determinant
    span = high - low
    return torch.stack([high - t * span, low + s * span], 3)  # P₀ − P₁ = (0, span), P₂ − P₁ = (−span, 0)
