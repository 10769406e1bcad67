"""Weather: snow, frost and fog."""

from __future__ import annotations

import torch
from torch import Tensor

from acclimate.data.corruptions.draws import Draws
from acclimate.data.corruptions.levels import to_bytes
from acclimate.data.corruptions.motion import move
from acclimate.data.corruptions.plasma import plasma
from acclimate.data.corruptions.tables import Parameters
from acclimate.data.corruptions.textures import frost_textures
from acclimate.data.corruptions.zoom import zoom


def snow(images: Tensor, parameters: Parameters, draws: Draws) -> Tensor:
    """Flakes from thresholded noise, blurred by their fall in a direction of −135° to −45°, over a whitened image."""
    loc, scale, *_ = parameters
    layer = draws.normal(*images.shape[2:]).double().mul_(scale).add_(loc)
    return let_it_snow(images, parameters, layer, draws.uniform().double() * 90 - 135)


def let_it_snow(images: Tensor, parameters: Parameters, layer: Tensor, degrees: Tensor) -> Tensor:
    """Keep · x + (1 − keep) · max(x, 1.5 grey + 0.5), plus the layer [B, S, S], plus the layer turned by 180°."""
    _, _, factor, threshold, radius, sigma, keep = parameters
    layer = zoom(layer.double(), factor)
    flakes = to_bytes(layer.where(layer >= threshold, 0).mul_(255))[:, None]
    fallen = move(flakes, int(radius), sigma, degrees).float().div_(255)
    x = images.float().div_(255)
    grey = x[:, :1] * 0.299 + x[:, 1:2] * 0.587 + x[:, 2:] * 0.114
    white = torch.maximum(x, grey.mul_(1.5).add_(0.5)).mul_(1 - keep)
    return to_bytes(x.mul_(keep).add_(white).add_(fallen).add_(fallen.flip(2, 3)).mul_(255))


def frost(images: Tensor, parameters: Parameters, draws: Draws) -> Tensor:
    """A random crop of one of five photographs: the publication never draws its sixth."""
    side = images.shape[-1]
    textures = frost_textures(side)
    which = draws.integers(0, len(textures)).tolist()
    free = torch.tensor([[size - side for size in textures[i].shape[1:]] for i in which], dtype=torch.float64)
    corners = (draws.uniform(2).double() * free).long().tolist()  # rows in [0, h − S), columns in [0, w − S)
    crops = [textures[i][:, y : y + side, x : x + side] for i, (y, x) in zip(which, corners, strict=True)]
    return freeze(images, torch.stack(crops), parameters)


def freeze(images: Tensor, crops: Tensor, parameters: Parameters) -> Tensor:
    """Weighted sum a · image + b · texture, both bytes [B, 3, S, S]."""
    image_weight, texture_weight = parameters
    return to_bytes(images.double().mul_(image_weight).add_(crops.double().mul_(texture_weight)))


def fog(images: Tensor, parameters: Parameters, draws: Draws) -> Tensor:
    """A plasma fractal laid over the image; its side is the next power of two."""
    strength, decay = parameters
    side = images.shape[-1]
    levels = range((side - 1).bit_length())
    roughness = [draws.uniform(3, 2**level, 2**level).double().mul_(2).sub_(1) for level in levels]
    return veil(images, plasma(roughness, decay)[:, :side, :side], strength)


def veil(images: Tensor, heights: Tensor, strength: float) -> Tensor:
    """(x + s m) · M / (M + s) with the map m [B, S, S] and M the maximum over all of an image's elements."""
    x = images.float().div_(255)
    most = x.amax((1, 2, 3), keepdim=True)
    return to_bytes(x.add_(heights[:, None].float() * strength).mul_(most / (most + strength)).mul_(255))
