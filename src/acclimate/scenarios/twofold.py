"""New clients meet label shift in one stream and image shift in another: the scenario of the quickstart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from acclimate.data import partition, sources
from acclimate.data.image_shifts import Blur, Both, Brightness, Contrast, Noise, Rotation, Shift
from acclimate.errors import ConfigError
from acclimate.options import Count, NonNegative, Share
from acclimate.scenarios.population import Holding, Plan, Scenario, StreamPlan

# What the feature stream does to the images, client after client.
WEATHER: tuple[Shift, ...] = (Contrast(0.3), Brightness(0.4), Contrast(0.15), Blur(2.0), Rotation(20))


@dataclass(frozen=True)
class Twofold(Scenario):
    """Source clients with all classes alike; test clients with a stream `label` and a stream `feature`.

    All images pass a poor camera (`noise`), so that there is something to gain. `new=False` tests the source
    clients themselves, as methods with personal parameters need.
    """

    data: str = "digits"
    size: Count = 32
    source_clients: Count = 10
    per_source: Count = 100
    validation: Share = 0.2
    test_clients: Count = 10
    major: Count = 30  # images of each of a client's two major classes, in the label stream
    minor: Count = 1  # images of each other class
    noise: NonNegative = 0.8
    new: bool = True

    def plan(self, seed: int) -> Plan:
        if not self.new and self.test_clients > self.source_clients:
            raise ConfigError(
                [f"test_clients is {self.test_clients}, but with new: false only the {self.source_clients} "
                 "source clients can be tested"], "scenario 'twofold'",
            )  # fmt: skip
        dataset, rng = sources.load(self.data, self.size), np.random.default_rng([seed, 1])
        camera = Noise(self.noise)
        everything = np.arange(len(dataset.labels))
        even = partition.even_counts(self.source_clients, dataset.classes, self.per_source)
        own = partition.draw(dataset.labels, everything, even, rng)
        cut = round(self.per_source * (1 - self.validation))
        source = {c: (Holding(rows[:cut], camera), Holding(rows[cut:], camera)) for c, rows in enumerate(own)}

        rest = np.setdiff1d(everything, np.concatenate(own))
        each = 2 * self.major + (dataset.classes - 2) * self.minor
        uneven = partition.step_counts(self.test_clients, dataset.classes, self.major, self.minor)
        level = partition.even_counts(self.test_clients, dataset.classes, each)
        streams = []
        for name, counts in (("label", uneven), ("feature", level)):
            for k, rows in enumerate(partition.draw(dataset.labels, rest, counts, rng)):
                shift = camera if name == "label" else Both(camera, WEATHER[k % len(WEATHER)])
                client = k + self.source_clients if self.new else k
                streams.append(StreamPlan(client, name, [Holding(rows, shift)]))
        return Plan(dataset, source, streams)
