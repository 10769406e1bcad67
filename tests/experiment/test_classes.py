"""Classes of drawn features come from the run's own images."""

import torch

import battery
from acclimate import trees
from acclimate.adapters.fedicon import FedICON
from acclimate.contracts import AdapterRecipe
from acclimate.engine.evaluate import Commit
from acclimate.engine.messages import Figure
from acclimate.experiment.classes import with_classes


def test_classes_are_those_of_the_images_of_the_slot():
    people = battery.population()
    recipe = AdapterRecipe(FedICON, {"picture": True})
    commits = list(battery.run_adapter(recipe, seed=5))
    drawn = {}
    for commit in commits:
        assert all("classes" not in trees.load(figure.values) for figure in commit.figures)  # nobody sends them
        for figure in with_classes(commit, people, people.streams, battery.TEST.batch_size).figures:
            drawn[figure.client, figure.stream, figure.slot] = trees.load(figure.values)
    assert len(drawn) == sum(len(stream.slots(7)) for stream in people.streams)
    for stream in people.streams:
        for t, slot in enumerate(stream.slots(7)):
            found = drawn[stream.client, stream.name, t]
            assert torch.equal(found["classes"], people.examples(slot.parts[0]).y)
            assert found["features"].shape == (2, len(found["classes"]), 2)


def test_classes_are_added_to_features_only():
    figure = Figure(0, "label", 0, trees.dump({"e": torch.ones(3)}))
    people = battery.population()
    commit = Commit([], [figure])
    assert with_classes(commit, people, people.streams, 7).figures == [figure]
    nothing = Commit()
    assert with_classes(nothing, people, people.streams, 7) is nothing
