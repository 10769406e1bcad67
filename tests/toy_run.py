"""A finished run with numbers that can be worked out by hand."""

from acclimate.engine.evaluate import Commit, Score
from acclimate.store.database import Store, Unit

DOMAINS = {0: "amazon", 1: "dslr", 2: "dslr"}
# stream → system → client → (correct, count): of 10 images of amazon, 2 and 4 of dslr
COUNTS = {
    "original": {"none": {0: (8, 10), 1: (1, 2), 2: (4, 4)}, "tent": {0: (9, 10), 1: (2, 2), 2: (2, 4)}},
    "corrupted": {"none": {0: (5, 10), 1: (1, 2), 2: (1, 4)}, "tent": {0: (6, 10), 1: (2, 2), 2: (1, 4)}},
}


def toy(folder, counts=COUNTS, groups=DOMAINS, seeds=(0,)):
    """A finished run of domain shift, as the engine would have written it; all seeds alike."""
    store = Store(folder / "store.sqlite")
    systems = [{"name": name, "phases": []} for name in ("none", "tent")]
    experiment = {
        "name": "toy",
        "scenario": {"name": "hand"},
        "model": {"name": "shallow-cnn"},
        "systems": systems,
        "test": {"reset": "never", "batch_size": 10},
        "seeds": list(seeds),
    }
    run = store.run("toy-0", experiment, {"torch": "2"})
    store.note(run, "", -1, "streams", list(counts))
    for seed in seeds:
        store.note(run, "", seed, "groups", groups)
        for system in ("none", "tent"):
            store.note(run, system, -1, "baseline", "none")
            scores = [
                Score(client, stream, slot, "snow 5", {"correct": c * share, "count": n * share, "seconds": 0.1})
                for stream, by_system in counts.items()
                for client, (c, n) in by_system[system].items()
                for slot, share in enumerate((0.5, 0.5))
            ]
            store.commit(Unit(run, system, seed), Commit(scores))
    store.finish(run)
    return store, store.runs()[0]
