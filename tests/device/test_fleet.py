"""Devices that exchange through a server, one message at a time."""

import pytest
import torch

import acclimate as ac
import battery
from acclimate import params, trees
from acclimate.contracts import Aggregator, Mix
from acclimate.errors import ConfigError
from acclimate.experiment.catalog import AGGREGATORS
from acclimate.scenarios.population import Stream
from classifiers import Tokens, cnn, images, labelled, tokens


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
        "e": f"[0]['{key}'] is float32 [1], expected float32 [4]"[:30],
    }


def changed(message, **parts):
    """A message with parts of it replaced, each by what a function makes of it."""
    nest = trees.load(message)
    return trees.dump({**nest, **{part: change(nest[part]) for part, change in parts.items()}})


def variances(value):
    return lambda shared: {n: t.fill_(value) if n.endswith("running_var") else t for n, t in shared.items()}


IMPOSSIBLE = {
    "a tensor": lambda m: trees.dump(torch.ones(3)),
    "a string": lambda m: trees.dump("params"),
    "too many images for a float": lambda m: changed(m, weight=lambda _: 10**400),
    "too many images": lambda m: changed(m, weight=lambda _: 1e300),
    "no images": lambda m: changed(m, weight=lambda _: 0),
    "a weight that is text": lambda m: changed(m, weight=lambda _: "6"),
    "a signature of another shape": lambda m: changed(m, signature=lambda _: torch.ones(3)),
    "a signature that is a number": lambda m: changed(m, signature=lambda _: torch.tensor(1.0)),
    "a signature that is text": lambda m: changed(m, signature=lambda _: "here"),
    "a signature that is a mapping": lambda m: changed(m, signature=lambda s: {"mean": s}),
    "a loud signature": lambda m: changed(m, signature=lambda s: 1e6 * s),
    "other shapes": lambda m: changed(m, params=lambda p: {name: torch.ones(7) for name in p}),
    "another type": lambda m: changed(m, params=lambda p: trees.transform(lambda t: t.double(), p)),
    "a type without sums": lambda m: changed(m, params=lambda p: trees.transform(lambda t: t.to(torch.float8_e5m2), p)),
    "numbers for names": lambda m: changed(m, params=lambda p: dict(enumerate(p.values()))),
    "no variances at all": lambda m: changed(m, params=variances(-1e6)),
    "variances just below zero": lambda m: changed(m, params=variances(-0.01)),
    "values far away": lambda m: changed(m, params=lambda p: trees.transform(lambda t: t + 1000, p)),
}


@pytest.mark.parametrize("how", IMPOSSIBLE)
@pytest.mark.parametrize("liar", ["a", "c"])  # the first and the last to join
def test_impossible_message_costs_only_its_sender(liar, how):
    def fleet():
        made = ac.Fleet(cnn(), "bn-adapt", {"name": "tsa", "epochs": 2})
        return made, {name: made.join(name).adapt(some(i)) for i, name in enumerate("abc")}

    (without, uploads), (withal, _) = fleet(), fleet()
    honest = {name: upload for name, upload in uploads.items() if name != liar}
    downloads = withal.exchange({**uploads, liar: IMPOSSIBLE[how](uploads[liar])})
    assert list(withal.server.left_out) == [liar]
    assert downloads == without.exchange(honest)
    assert withal.exchange(uploads).keys() == uploads.keys()  # it may come back


@pytest.mark.parametrize("aggregator", AGGREGATORS)
@pytest.mark.parametrize("place", [0, 2])
def test_hello_of_another_shape_does_not_count_where_the_aggregator_begins(place, aggregator):
    devices = {name: ac.Device(ac.wrap(cnn(), "bn-adapt"), ac.Server(aggregator).signs) for name in "ab"}
    uploads = {name: device.adapt(some(i)) for i, (name, device) in enumerate(devices.items())}
    strange = changed(devices["a"].hello(), params=lambda shared: {name: torch.ones(3) for name in shared})
    hellos = [(name, device.hello()) for name, device in devices.items()]
    without, withal = ac.Server(aggregator), ac.Server(aggregator)
    for server, joining in ((without, hellos), (withal, [*hellos[:place], ("strange", strange), *hellos[place:]])):
        for name, hello in joining:
            server.join(name, hello)
    assert withal.exchange(uploads) == without.exchange(uploads)
    assert withal.left_out == {}


@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_server_waits_until_somebody_has_joined(aggregator):
    fleet = ac.Fleet(cnn(), "tent", aggregator)
    assert fleet.exchange({}) == {}
    late = fleet.join("late")
    assert fleet.exchange({}) == {}
    assert list(fleet.exchange({"late": late.adapt(some(0))})) == ["late"]


def test_device_that_comes_alone_is_judged_by_those_that_are_absent():
    fleet = ac.Fleet(cnn(), "em", "fedavgm")
    devices = {name: fleet.join(name) for name in "abc"}
    fleet.exchange({name: devices[name].adapt(some(i)) for i, name in enumerate("ab")})
    alone = changed(devices["c"].adapt(some(2)), params=lambda _: {"prior": torch.ones(7) / 7})
    assert fleet.exchange({"c": alone}) == {}
    assert fleet.server.left_out == {"c": "[0]['prior'] is float32 [7], expected float32 [4]"}


@pytest.mark.parametrize(("adapter", "aggregator"), [("em", "fedavgm"), ("em", "ldawa"), ("tent", "tsa")])
def test_server_begins_anew_when_most_turn_out_to_look_different_from_who_came_first(adapter, aggregator):
    fleet = ac.Fleet(cnn(), adapter, aggregator)
    devices = {name: fleet.join(name) for name in "abc"}
    uploads = {name: device.adapt(some(i)) for i, (name, device) in enumerate(devices.items())}
    longer = {"signature": lambda _: torch.ones(3)}
    if adapter == "em":
        longer = {"params": lambda _: {"prior": torch.ones(7) / 7}}
    assert list(fleet.exchange({"a": changed(uploads["a"], **longer)})) == ["a"]  # nobody knows better yet
    assert list(fleet.exchange({"b": uploads["b"], "c": uploads["c"]})) == ["b", "c"]
    assert list(fleet.exchange(uploads)) == ["a", "b", "c"]


@pytest.mark.parametrize("aggregator", AGGREGATORS)
def test_upload_of_no_images_is_left_out_though_it_comes_alone(aggregator):
    """Its share would be 0 / 0."""
    fleet = ac.Fleet(cnn(), "bn-adapt", aggregator)
    upload = fleet.join("a").adapt(some(0))
    assert fleet.exchange({"a": changed(upload, weight=lambda _: 0)}) == {}
    assert fleet.server.left_out["a"].startswith("its weight is no number of images from 1 to 1000000; if batches")
    assert list(fleet.exchange({"a": upload})) == ["a"]


def test_mixture_that_is_not_finite_is_sent_to_nobody_and_leaves_no_trace():
    class Counting(Aggregator):
        """The first mixture is not finite, and what it leaves behind is spoilt."""

        def init(self, start):
            return torch.zeros(())

        def mix(self, state, uploads, slot):
            scale = torch.nan if slot == 0 else 1.0 + state
            return Mix([trees.transform(lambda t: t * scale, upload.params) for upload in uploads], state * scale)

    fleet = ac.Fleet(cnn(), "bn-adapt", Counting())
    upload = fleet.join("a").adapt(some(0))
    assert fleet.exchange({"a": upload}) == {}
    assert fleet.server.left_out == {"a": "what was mixed for it is not finite"}
    assert trees.equal(trees.load(fleet.exchange({"a": upload})["a"]), trees.load(upload)["params"])


def test_limits_are_those_of_the_adapter_not_of_names():
    """What ATP shares under the name of a variance is a direction, and may be negative; liars' limits do not count."""
    knowledge = ac.calibrate(cnn(), "atp", labelled(images()), rounds=1)
    fleet = ac.Fleet(cnn(), "atp", "fedavg", **knowledge)
    uploads = {name: fleet.join(name).adapt(some(i) * 0.01) for i, name in enumerate("ab")}
    hello = ac.Device(ac.wrap(cnn(), "atp", **knowledge)).hello()
    for k, limits in enumerate([{"1.running_var": [5, 5]}, {"1.running_var": "no pair"}, {"x": [0, 10**400]}, 3]):
        fleet.server.join(f"liar {k}", changed(hello, limits=lambda _, limits=limits: limits))
    assert float(trees.load(uploads["a"])["params"]["1.running_var"].min()) < 0
    assert list(fleet.exchange(uploads)) == ["a", "b"]


def test_exchange_leaves_the_callers_generator_as_it_was():
    fleet = ac.Fleet(cnn(), "tent", "tsa")
    upload = fleet.join("a").adapt(some(0))
    drawn = torch.get_rng_state()
    fleet.exchange({"a": upload})
    assert torch.equal(torch.get_rng_state(), drawn)


def test_server_reads_a_state_and_a_hello_of_an_earlier_version():
    fleet, server = ac.Fleet(cnn(), "tent", "fedavg"), ac.Server("fedavg")
    device = fleet.join("a")
    server.load_state({key: part for key, part in fleet.server.state().items() if key != "limits"})
    hello = trees.load(device.hello())
    del hello["limits"]
    server.join("b", trees.dump(hello))
    assert list(server.exchange({name: device.adapt(some(0)) for name in "ab"})) == ["a", "b"]


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
