"""Classifiers of every kind that users bring, with a batch for each, and knowledge for adapters that need some."""

import warnings
from collections import OrderedDict

import torch
from torch import nn

import acclimate as ac
from acclimate import params
from acclimate.device.inputs import adaptable
from acclimate.device.wrapping import calibrations
from acclimate.experiment.catalog import ADAPTERS
from acclimate.models.head import head_of
from acclimate.models.loss_net import InnerStep, LossNet
from acclimate.models.rotation import rotation_head

CLASSES, BATCH = 4, 6


def images():
    return torch.rand(BATCH, 3, 8, 8, generator=torch.Generator().manual_seed(0))


def cnn(norm=nn.BatchNorm2d):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), norm(4), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, CLASSES)
    )


class Signal(nn.Module):
    """One-dimensional signals [batch, channels, time]."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.out = nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.out(self.norm(self.conv(x)).relu().mean(2))


class Tokens(nn.Module):
    """Token ids with a mask, as language models take them, by name; returns an object with `.logits`."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.norm, self.out = nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, CLASSES)

    def forward(self, input_ids, attention_mask):
        seen = self.norm(self.embed(input_ids)) * attention_mask.unsqueeze(2)
        return Answer(self.out(seen.mean(1)))


class Answer:
    def __init__(self, logits):
        self.logits = logits


class Returning(nn.Module):
    """The same model with another kind of answer."""

    def __init__(self, how):
        super().__init__()
        self.body, self.how = cnn(), how

    def forward(self, x):
        return self.how(self.body(x))


def as_tuple(logits):
    return logits, logits.mean()


def as_dict(logits):
    return OrderedDict(loss=logits.mean(), logits=logits)


def tabular():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, CLASSES))


def compiled():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.compile(cnn(), backend="eager")


def tokens():
    ids = torch.randint(11, (BATCH, 7), generator=torch.Generator().manual_seed(0))
    return {"input_ids": ids, "attention_mask": (ids > 1).float()}


def numbers(*shape):
    return torch.rand(BATCH, *shape, generator=torch.Generator().manual_seed(0))


# name → (the model, a batch of its inputs by position or by name)
MODELS = {
    "batch norm": (cnn, images),
    "group norm": (lambda: cnn(lambda channels: nn.GroupNorm(2, channels)), images),
    "no norm": (lambda: cnn(lambda channels: nn.Identity()), images),
    "1-d signal": (Signal, lambda: numbers(2, 9)),
    "tabular": (tabular, lambda: numbers(5)),
    "token ids": (Tokens, tokens),
    "tuple output": (lambda: Returning(as_tuple), images),
    "dict output": (lambda: Returning(as_dict), images),
    "compiled": (compiled, images),
    "float64": (lambda: cnn().double(), lambda: images().double()),
    "bfloat16": (lambda: cnn().bfloat16(), lambda: images().bfloat16()),
}


def call(function, batch):
    return function(**batch) if isinstance(batch, dict) else function(batch)


def labelled(batch, batches=2):
    y = torch.arange(BATCH) % CLASSES
    return [(batch, y)] * batches


def knowledge(name, model, batch):
    """What an adapter needs: calibrated on labelled batches, or what training would have made."""
    needs = ADAPTERS[name].load().needs
    if set(needs) <= set(calibrations()):
        return ac.calibrate(model, name, labelled(batch), rounds=1)
    net = adaptable(model)
    _, head = head_of(net)
    dtype, width = head.weight.dtype, head.in_features
    half = torch.full((width,), 0.5, dtype=torch.float64)
    made = {
        "head": lambda: head.weight.detach().flip(0),
        "densities": lambda: {"local": half, "global": half + 0.1},
        "entropies": lambda: {"local": torch.tensor(0.5), "global": torch.tensor(0.7)},
        "means": lambda: {"local": half, "global": half + 1},
        "loss_net": lambda: params.of(LossNet(CLASSES).to(dtype)),
        "inner_step": lambda: InnerStep(0.1, 0.0, None),
        "rotation": lambda: params.of(rotation_head(net)),
        "heads": lambda: {
            f"{head_of(net)[0]}.{n}": torch.stack([t.detach(), t.detach() + 1]) for n, t in head.named_parameters()
        },
    }
    return {need: made[need]() for need in needs}
