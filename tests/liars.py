"""Clients whose replies and uploads are changed on their way to the server."""

import torch

import battery
from acclimate import trees
from acclimate.engine.executor import Serial
from acclimate.engine.messages import Took
from acclimate.trees import Parcel

LIAR = 1


class Tampered(Serial):
    """Clients whose replies or uploads are changed on their way to the server."""

    def __init__(self, change):
        super().__init__()
        self.change = change

    def install(self, work):
        super().install(work)
        do = self._doing.do

        def tampering(task):
            result = do(task)
            if isinstance(result, Took) and task.id == LIAR:
                return result._replace(reply=self.change(result.reply))
            upload = None if isinstance(result, Took) else getattr(result, "upload", None)
            if upload is not None and (sent := upload.open()).client == self.victim():
                return result._replace(upload=Parcel(self.change(sent)))
            return result

        self._doing.do = tampering

    @staticmethod
    def victim():
        return battery.population().streams[0].client


def _first_changed(nest, change):
    """The nest with its first tensor changed."""
    left = [change]
    return trees.transform(lambda tensor: left.pop()(tensor) if left else tensor, nest)


SHAPES = {
    "ones(1) for every tensor": lambda nest: trees.transform(lambda tensor: torch.ones(1), nest),
    "another type": lambda nest: _first_changed(nest, lambda t: t.double() if t.dtype != torch.float64 else t.float()),
    "a longer tensor": lambda nest: _first_changed(nest, lambda t: torch.zeros(t.numel() + 1, dtype=t.dtype)),
    "a list": lambda nest: [nest],
    "nothing": lambda nest: None,
    "a string": lambda nest: "model",
    "another name": lambda nest: {"evil": torch.ones(1)},
}
