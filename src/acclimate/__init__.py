"""Acclimate: train a model across clients that keep their data, then let it adapt, without labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from acclimate.version import __version__

if TYPE_CHECKING:
    from torch import nn

    from acclimate.contracts import Adapter

__all__ = ["__version__", "wrap"]


def wrap(model: nn.Module, adapter: str, **options: Any) -> Adapter:
    """Put an adapter around a copy of any torch classifier.

    The result adapts and predicts when it is called with a batch; your model stays as it is. Options are those of
    the adapter (`acclimate show tent`); what an adapter needs besides the model, such as BBSE's confusion matrix,
    is given by name too.

    >>> from torch import nn, ones
    >>> wrap(nn.Sequential(nn.Linear(2, 3)), "em")(ones(4, 2)).shape
    torch.Size([4, 3])
    """
    import copy

    from acclimate.errors import ConfigError, MissingKnowledge, nearest
    from acclimate.experiment.catalog import ADAPTERS
    from acclimate.experiment.schema import check

    if adapter not in ADAPTERS:
        raise ConfigError([f"unknown adapter '{adapter}'; {nearest(adapter, ADAPTERS)}"], "wrap")
    target = ADAPTERS[adapter].load()
    missing = [name for name in target.needs if name not in options]
    if missing:
        raise MissingKnowledge(
            f"adapter '{adapter}' needs {', '.join(missing)}: wrap(model, '{adapter}', {missing[0]}=...)"
        )
    needed = {name: options.pop(name) for name in target.needs}
    values, _, problems = check(target, options, adapter)
    if problems:
        raise ConfigError(problems, "wrap")
    made: Adapter = target(copy.deepcopy(model), **needed, **values)
    return made
