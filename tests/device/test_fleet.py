"""Devices that exchange through a server, one message at a time."""

import pytest
import torch

import acclimate as ac
import battery
from acclimate import params, trees
from acclimate.errors import ConfigError
from acclimate.experiment.catalog import AGGREGATORS
from acclimate.scenarios.population import Stream
from classifiers import Tokens, cnn, images, tokens


def some(seed, count=6):
    return torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(seed))


def together(fleet, devices, batches):
    """One exchange: everybody's logits."""
    uploads = {name: device.adapt(batches[name]) for name, device in devices.items()}
    downloads = fleet.exchange(uploads)
    for name, device in devices.items():
        device.take(downloads.get(name))
    return {name: device.predict(batches[name]) for name, device in devices.items()}


@pytest.mark.parametrize("aggregator", ["local", "fedavg", "fedamp", "fedavgm", "pfedgraph", "ldawa"])  # tsa draws
@pytest.mark.parametrize("adapter", ["tent", "em"])
def test_fleet_predicts_what_the_engine_does(adapter, aggregator):
    people = battery.population()
    streams = [stream for stream in people.streams if stream.name == people.streams[0].name]
    executor, heard = battery.Listening(), []
    executor.heard = heard
    list(battery.run_test(adapter, aggregator, executor=executor, seconds=1e9))
    model, knowledge = battery.knowledge(adapter)
    fleet = ac.Fleet(params.load(battery.build()(), model), adapter, aggregator, **knowledge)
    devices = {str(stream.client): fleet.join(str(stream.client)) for stream in streams}
    slots = {str(stream.client): stream.slots(7) for stream in streams}
    found = []
    for t in range(3):
        batches = {name: people.examples(slots[name][t].parts[0]).x for name in devices}
        found += together(fleet, devices, batches).values()
    for ours, theirs in zip(found, heard, strict=False):
        torch.testing.assert_close(ours, theirs)
    assert isinstance(streams[0], Stream)
    assert len(found) == 9 <= len(heard)


@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_fleet_of_every_aggregator_takes_devices_that_come_late_leave_and_come_back(aggregator):
    fleet = ac.Fleet(cnn(), "tent", aggregator, lr=0.01)
    devices = {"a": fleet.join("a")}
    together(fleet, devices, {"a": some(0)})
    devices["b"], devices["c"] = fleet.join("b"), fleet.join("c")  # `init` never saw them
    for seed in range(2):
        batches = {name: some(10 * seed + i) for i, name in enumerate(devices)}
        for logits in together(fleet, devices, batches).values():
            assert logits.isfinite().all()
    fleet.leave("a")
    del devices["a"]
    for logits in together(fleet, devices, {"b": some(7), "c": some(8)}).values():
        assert logits.isfinite().all()
    assert fleet.exchange({}) == {}  # everybody is away
    fleet.leave("c")
    devices = {"b": devices["b"], "a": fleet.join("a")}
    for logits in together(fleet, devices, {"b": some(5), "a": some(6)}).values():
        assert logits.isfinite().all()
    assert fleet.server.members == ("b", "a")


@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_server_keeps_nothing_of_a_device_that_left(aggregator):
    """However many come and go, the state does not grow."""
    fleet = ac.Fleet(cnn(), "tent", aggregator, lr=0.01)
    stays, sizes = fleet.join("stays"), []
    for k in range(4):
        guest = fleet.join(f"guest {k}")
        together(fleet, {"stays": stays, f"guest {k}": guest}, {"stays": some(k), f"guest {k}": some(k + 50)})
        fleet.leave(f"guest {k}")
        if k >= 1:
            sizes.append(len(list(trees.leaves(fleet.server.state()))))
    assert len(set(sizes)) == 1


@pytest.mark.parametrize("aggregator", ["fedavgm", "tsa"])
def test_server_goes_on_after_a_restart_with_the_same_bits(aggregator):
    fleet = ac.Fleet(cnn(), "tent", aggregator, lr=0.01)
    devices = {name: fleet.join(name) for name in "ab"}
    together(fleet, devices, {"a": some(0), "b": some(1)})
    uploads = {name: device.adapt(some(2)) for name, device in devices.items()}
    other = ac.Server(aggregator)
    other.load_state(trees.load(trees.dump(fleet.server.state())))
    assert other.exchange(uploads) == fleet.exchange(uploads)


def test_fleet_equals_by_hand():
    """FedAvg of two devices, weighted by their images: (2 · a + 6 · b) / 8."""
    fleet = ac.Fleet(cnn(), "bn-adapt", "fedavg", prior=0)
    a, b = fleet.join("a"), fleet.join("b")
    uploads = {"a": a.adapt(some(0, 2)), "b": b.adapt(some(1, 6))}
    key = "1.running_mean"
    x, y = (trees.load(upload)["params"][key] for upload in uploads.values())
    downloads = fleet.exchange(uploads)
    torch.testing.assert_close(trees.load(downloads["a"])[key], (2 * x + 6 * y) / 8)
    assert downloads["a"] == downloads["b"]


def test_device_predicts_alone_where_no_answer_comes():
    fleet = ac.Fleet(cnn(), "tent", "fedavg", lr=0.1)
    device, alone = fleet.join("a"), ac.wrap(cnn(), "tent", lr=0.1)
    x = images()
    device.adapt(x)
    device.take(None)
    alone.adapt(x)
    assert torch.equal(device.predict(x), alone.predict(x))


def test_messages_are_nests_of_tensors_with_a_signature_of_the_shipped_model_where_it_is_asked_for():
    fleet = ac.Fleet(cnn(), "tent", "tsa", lr=0.5)
    device, x = fleet.join("a"), images()
    first, second = (trees.load(device.adapt(x)) for _ in range(2))
    assert list(first) == ["params", "signature", "weight"]
    assert first["weight"] == len(x)
    assert torch.equal(first["signature"], second["signature"])  # adaptation does not change it
    assert not trees.equal(first["params"], second["params"])
    tokened = ac.Fleet(Tokens(), "tent", "tsa").join("a")
    assert trees.load(tokened.adapt(**tokens()))["weight"] == 6


def test_server_leaves_out_what_cannot_be_mixed_and_says_why():
    fleet = ac.Fleet(cnn(), "tent", "tsa")
    devices = {name: fleet.join(name) for name in "abcde"}
    uploads = {name: device.adapt(some(i)) for i, (name, device) in enumerate(devices.items())}
    good = trees.load(uploads["b"])
    key = next(iter(good["params"]))
    uploads["b"] = b"nonsense"
    uploads["c"] = trees.dump(
        {**good, "params": {**good["params"], key: torch.full_like(good["params"][key], torch.nan)}}
    )
    uploads["d"] = trees.dump({**good, "signature": None})
    uploads["e"] = trees.dump({**good, "params": {**good["params"], key: torch.ones(1)}})
    downloads = fleet.exchange(uploads)
    assert list(downloads) == ["a"]
    assert {name: text[:30] for name, text in fleet.server.left_out.items()} == {
        "b": "expected params, signature and",
        "c": "it has values that are not fin",
        "d": "it has no signature, and this ",
        "e": f"'{key}' has shape [1] and the others' [4]"[:30],
    }


def test_fleet_says_what_is_wrong():
    fleet = ac.Fleet(cnn(), "tent", {"name": "fedamp", "sigma": 1})
    fleet.join("north")
    with pytest.raises(ConfigError, match="'north' is in the fleet already"):
        fleet.join("north")
    with pytest.raises(ConfigError, match="'nroth' is not in the fleet; did you mean 'north'"):
        fleet.exchange({"nroth": b""})
    with pytest.raises(ConfigError, match="is not in the fleet"):
        fleet.leave("south")
    with pytest.raises(ConfigError, match="this adapter shares nothing"):
        ac.Fleet(cnn(), "t3a", "fedavg").join("a")
    with pytest.raises(ConfigError, match="did you mean 'fedavg'"):
        ac.Fleet(cnn(), "tent", "fedvag")
    with pytest.raises(ConfigError, match="the hello of 'x' cannot be used"):
        fleet.server.join("x", b"")
