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
    is given by name too. An option that is a method is a name, or a mapping with name and options:
    `wrap(model, "tta-grad", term={"name": "fedprox", "mu": 0.1})`.

    >>> from torch import nn, ones
    >>> wrap(nn.Sequential(nn.Linear(2, 3)), "em")(ones(4, 2)).shape
    torch.Size([4, 3])
    """
    import copy

    from acclimate.errors import ConfigError, MissingKnowledge, nearest
    from acclimate.experiment.catalog import ADAPTERS
    from acclimate.experiment.choice import choose
    from acclimate.experiment.schema import options_of

    if adapter not in ADAPTERS:
        raise ConfigError([f"unknown adapter '{adapter}'; {nearest(adapter, ADAPTERS)}"], "wrap")
    target = ADAPTERS[adapter].load()
    known = options_of(target).model_fields
    own = {"name": adapter, **{name: value for name, value in options.items() if name in known}}
    chosen, problems = choose(own, adapter, ADAPTERS)
    needs = chosen.made.needs if chosen else target.needs  # what is needed may depend on the options
    rest = {name: value for name, value in options.items() if name not in known and name not in needs}
    if rest or chosen is None:
        raise ConfigError(choose({**own, **rest}, adapter, ADAPTERS)[1] or problems, "wrap")
    if missing := [name for name in needs if name not in options]:
        raise MissingKnowledge(
            f"adapter '{adapter}' needs {', '.join(missing)}: wrap(model, '{adapter}', {missing[0]}=...)"
        )
    made: Adapter = chosen.made(copy.deepcopy(model), **{name: options[name] for name in needs})
    return made
