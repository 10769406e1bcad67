"""Bundles of any adapter of the catalog, for tests."""

import battery
from acclimate import params
from acclimate.device import bundle
from acclimate.device.wrapping import around, chosen_adapter, method_of


def exported(name, folder, **options):
    """A bundle of any adapter of the catalog, and the same adapter around the same model."""
    tensors, needed = battery.knowledge(name)
    people = battery.population()
    chosen, knowledge = chosen_adapter(name, {**needed, **options})
    problem = bundle.Problem({"name": "shallow-cnn"}, people.shape, people.mean, people.std)
    contents = bundle.Contents(method_of(chosen, knowledge), tensors, [f"class {k}" for k in range(10)], problem)
    bundle.write(folder, contents, {})
    return around(params.load(battery.build()(), tensors), chosen, knowledge)


def batch():
    held = battery.population().streams[0].segments[0][1]
    return battery.population().examples(held).x[:7]
