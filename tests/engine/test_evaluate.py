from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import battery
from acclimate import trees
from acclimate.adapters.none import NoAdaptation
from acclimate.aggregators.fedavg import FedAvg
from acclimate.aggregators.local import Local
from acclimate.contracts import AdapterRecipe, Aggregator, Mix
from acclimate.engine.evaluate import Test, check_knowledge
from acclimate.engine.executor import Serial
from acclimate.engine.known import Known
from acclimate.errors import ConfigError, MissingKnowledge
from acclimate.models.head import signature


class Wandering(NoAdaptation):
    """Moves by one at every batch; on clients whose images are brighter than `limit` it moves to infinity."""

    def __init__(self, net, *, limit=2.0):
        super().__init__(net)
        self.limit, self.place = limit, torch.zeros(1)
        self.calls = []

    def adapt(self, x):
        self.place = self.place + (float("inf") if x.mean() > self.limit else 1.0)
        self.figures["place"] = self.place.clone()

    def moving(self):
        return {"place": self.place}

    def load_state(self, state):
        self.place = state["moving"]["place"].clone()


def run(target, aggregator=None, *, streams=None, options=None, **more):
    people = battery.population()
    if streams is not None:
        people = replace(people, streams=streams)
    recipe = AdapterRecipe(target, options or {})
    return list(battery.run_adapter(recipe, aggregator, people=people, **more))


def states(commits, member):
    """The states of one stream, slot by slot."""
    found = [commit.members[member] for commit in commits if member in commit.members]
    return [None if p.state is None else p.state.open()["moving"]["place"].item() for p in found]


def test_evaluate_carries_states_from_slot_to_slot_and_drops_them_at_the_end():
    assert states(run(Wandering), 0) == [1.0, 2.0, None]


def test_evaluate_resets_at_every_batch_if_asked():
    assert states(run(Wandering, test=Test(batch_size=7, reset="batch")), 0) == [1.0, 1.0, None]


def test_evaluate_resets_at_shifts_if_asked():
    people = battery.population()
    (name, a), (_, b) = people.streams[0].segments[0], people.streams[3].segments[0]
    stream = people.streams[0]._replace(segments=((name, a), ("other", b)))
    commits = run(Wandering, streams=[stream], test=Test(batch_size=10, reset="shift"))
    assert states(commits, 0) == [1.0, 2.0, 1.0, None]


def test_evaluate_batch_size_all_is_one_slot_with_everything():
    people = battery.population()
    (name, a), (other, b) = people.streams[0].segments[0], people.streams[3].segments[0]
    stream = people.streams[0]._replace(segments=((name, a), (other, b)))
    (commit,) = run(NoAdaptation, streams=[stream], test=Test(batch_size="all"))
    score = commit.scores[0]
    assert (score.slot, score.values["count"], score.shift) == (0, 40.0, f"{name} then {other}")


def test_evaluate_named_streams_start_fresh():
    people = battery.population()
    both = [m for m, stream in enumerate(people.streams) if stream.client == 0]
    assert [people.streams[m].name for m in both] == ["label", "feature"]
    commits = run(Wandering)
    assert states(commits, both[0]) == states(commits, both[1]) == [1.0, 2.0, None]


def test_evaluate_counts_every_image_once_and_by_class():
    people = battery.population()
    commits = run(NoAdaptation)
    slots = [s for commit in commits for s in commit.scores if s.slot >= 0]
    wholes = [s for commit in commits for s in commit.scores if s.slot == -1]
    assert sum(s.values["count"] for s in slots) == sum(len(h.rows) for s in people.streams for _, h in s.segments)
    for whole in wholes:
        own = [s for s in slots if (s.client, s.stream) == (whole.client, whole.stream)]
        for kind in ("correct", "count"):
            by_class = sum(value for name, value in whole.values.items() if name.startswith(f"{kind}/"))
            assert by_class == sum(s.values[kind] for s in own)


def test_evaluate_with_local_adapts_before_it_predicts():
    """Aggregator `local` is not 'no aggregator' for a method that predicts first, such as Tent."""
    alone, local = (
        battery.scores(battery.run_test("tent", lr=0.1)),
        battery.scores(battery.run_test("tent", "local", lr=0.1)),
    )
    correct = [[row for row in rows if row[4] == "correct"] for rows in (alone, local)]
    assert correct[0] != correct[1]


def test_evaluate_exchanges_only_every_so_many_slots():
    commits = run(Wandering, FedAvg(), test=Test(batch_size=7, sync_every=2))
    traffic = {(s.slot, "bytes_up" in s.values) for commit in commits for s in commit.scores if s.slot >= 0}
    assert traffic == {(0, False), (1, True), (2, False)}


def test_evaluate_counts_bytes_of_uploads_and_downloads():
    scores = [s for commit in run(Wandering, FedAvg()) for s in commit.scores if s.slot >= 0]
    assert {(s.values["bytes_up"], s.values["bytes_down"]) for s in scores} == {(4.0, 4.0)}


def test_evaluate_leaves_out_an_upload_that_is_not_finite_and_keeps_its_state():
    people = battery.population()
    brightness = {
        m: people.examples(s.segments[0][1]).x[:10].mean().item()
        for m, s in enumerate(people.streams)
        if s.name == "label"
    }
    brightest = max(brightness, key=brightness.get)
    limit = sorted(brightness.values())[-2]

    streams = [people.streams[m] for m in brightness]
    commits = run(Wandering, Local(), options={"limit": limit + 1e-6}, streams=streams, test=Test(batch_size=10))
    left_out = {s.client for commit in commits for s in commit.scores if s.slot == 0 and "left_out" in s.values}
    assert left_out == {people.streams[brightest].client}
    place = list(brightness).index(brightest)
    assert commits[0].members[place].state.open()["moving"]["place"].item() == 0.0


def test_evaluate_stores_figures_of_adapters_and_aggregators():
    commits = run(Wandering, FedAvg())
    figures = {
        (f.client, f.slot): trees.load(f.values) for commit in commits for f in commit.figures if f.stream == "label"
    }
    assert figures[-1, 0]["weights"].shape == (1, 3)  # all rows are equal, and kept once
    assert len(figures[-1, 0]["columns"]) == 3
    assert figures[0, 1]["place"].item() == 2.0


def test_evaluate_computes_signatures_of_the_frozen_source_model():
    seen = []

    class Signing(Aggregator):
        signs = True

        def init(self, start):
            return [u.client for u in start]

        def mix(self, state, uploads, slot):
            seen.extend((u.client, u.slot, u.signature) for u in uploads)
            return Mix([u.params for u in uploads], state)

    run(Wandering, Signing())
    people = battery.population()
    net = battery.build()()
    net.load_state_dict(battery.trained().of(None)["model"])
    x = people.examples(people.streams[0].slots(7)[1].parts[0]).x
    found = next(sign for client, slot, sign in seen if (client, slot) == (people.streams[0].client, 1))
    torch.testing.assert_close(found, signature(net.eval(), x), rtol=0, atol=1e-6)


class Recording(Serial):
    """Remembers all tasks and their homes."""

    def __init__(self):
        super().__init__()
        self.homes, self.asked = [], []

    def run(self, chunks, homes=None, count=None):
        chunks = list(chunks)
        self.homes.append(homes)
        self.asked += [task for (task,) in chunks]
        yield from super().run(chunks, homes, count)


def test_evaluate_spreads_the_clients_of_each_stream_over_the_workers():
    executor = Recording()
    run(Wandering, FedAvg(), executor=executor)
    names = [stream.name for stream in battery.population().streams]
    assert len(set(names)) > 1
    everybody = {tuple(range(names.count(name))) for name in names}
    assert {tuple(homes) for homes in executor.homes if homes} == everybody


def test_evaluate_refuses_to_mix_what_is_not_shared():
    with pytest.raises(ConfigError, match="shares nothing"):
        run(NoAdaptation, FedAvg())


def test_check_knowledge_names_what_is_missing_and_who_exports_it():
    clients = list(battery.population().source)
    with pytest.raises(MissingKnowledge, match=r"'confusion' is exported by no phase.*add one"):
        check_knowledge(battery.trained(), ["confusion"], clients)
    with pytest.raises(MissingKnowledge, match="'model' is exported by no phase"):
        check_knowledge(Known(), [], clients)


def test_check_knowledge_names_the_client_that_never_took_part():
    known = Known([battery.run_phase("fedper", rounds=1, cohort=1)])
    took_part = [c for c in battery.population().source if "model" in known.of(c)]
    assert len(took_part) == 1
    check_knowledge(known, [], took_part)
    with pytest.raises(MissingKnowledge, match=r"client . has no 'model'.*never did"):
        check_knowledge(known, [], list(battery.population().source))


def test_evaluate_gives_every_client_its_own_model_where_models_are_personal():
    known = Known([battery.run_phase("fedper", rounds=1, cohort="all")])
    personal = battery.scores(battery.run_test("none", known=known))
    people = battery.population()
    for stream in people.streams[:2]:
        net = battery.build()()
        net.load_state_dict(known.of(stream.client)["model"])
        batch = people.examples(stream.slots(7)[0].parts[0])
        expected = float((net.eval()(batch.x).argmax(-1) == batch.y).sum())
        row = next(r for r in personal if r[:3] == (stream.client, stream.name, 0) and r[4] == "correct")
        assert row[5] == expected


@pytest.mark.parametrize(("saving", "every"), [(0.0, 2), (0.125, 4)])
def test_evaluate_saves_less_often_where_saving_takes_long(monkeypatch, saving, every):
    """A slot takes one second. If saving takes an eighth, 4 % of the time allow for it every 3.125 s: four slots."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr("acclimate.engine.evaluate.time", SimpleNamespace(monotonic=lambda: clock.now))

    def slot(*_):
        clock.now += 1.0

    saved, sizes = [], []
    label = [stream for stream in battery.population().streams if stream.name == "label"]
    commits = battery.run_adapter(
        AdapterRecipe(Wandering),
        FedAvg(),
        people=replace(battery.population(), streams=label),
        test=Test(batch_size=1),
        seconds=2.0,
        progress=slot,
    )
    for commit in commits:
        saved.append(commit)
        sizes.append(len({score.slot for score in commit.scores if score.slot >= 0}))
        clock.now += saving
    assert len(sizes) > 2
    assert set(sizes[1:-1]) == {every}  # the first does not know yet, the last is what is left
    again = run(Wandering, FedAvg(), streams=label, test=Test(batch_size=1))
    assert battery.scores(saved) == battery.scores(again)
