"""The same experiment in this process and on nodes: the same numbers; what travels, what stays, and who is lost."""

import json
import sqlite3
from contextlib import closing

import pytest
import torch
import yaml

import acclimate as ac
import acclimate.flower.executor as executor_module
import battery
from acclimate import plugins, trees
from acclimate.engine.door import is_text
from acclimate.engine.known import Elsewhere
from acclimate.errors import MissingKnowledge
from acclimate.experiment.reader import parse, read
from acclimate.experiment.run import STORE, run
from acclimate.flower.codec import Named, digest_of
from acclimate.flower.executor import OnLine, TooFewNodes
from acclimate.flower.node import Node
from acclimate.flower.places import OnNodes
from acclimate.report.table import table
from acclimate.store.database import Store
from flower.inside import Inside

SYSTEMS = [
    {"name": "atp", "phases": [{"name": "atp", "rounds": 2}], "adapter": "atp"},
    "tsa+tta-bn",
    {"name": "drift", "phases": [{"name": "scaffold", "rounds": 2}], "adapter": "tent", "tune": {"lr": [0.01, 0.1]}},
    {"name": "heads", "phases": [{"name": "fedper", "rounds": 2}], "adapter": "tent", "aggregator": "fedavg"},
]


def experiment(**more):
    given = battery.tiny(**{"systems": SYSTEMS, "test": {"batch_size": 5}, **more})
    given["scenario"]["new"] = False
    return parse(given)


def measured(folder, name):
    with closing(Store(folder / STORE)) as store:
        found = store.find(name)
        assert found.finished
        rows = [{k: v for k, v in row.items() if "ms" not in k} for row in found.table()]
        figures = [(d.entry, d.client, d.slot, d.content) for s in found.streams for d in found.figures(s)]
    return rows, sorted(map(repr, figures))


def on_nodes(folder, chosen, line, **more):
    there = OnNodes.of(chosen, folder)
    executor = OnLine(line, there, say=lambda text: None, **more)
    executor.greet()
    run(there, folder, executor=executor)
    return measured(folder, there.run_name), executor


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    chosen = experiment()
    run(chosen, folder)
    return measured(folder, chosen.run_name)


def test_nodes_give_the_same_numbers_and_figures(alone, tmp_path):
    found, _ = on_nodes(tmp_path / "runs", experiment(), Inside(tmp_path))
    assert found == alone


# ---- what travels ----


def tiny(**more):
    """Three clients with states of their own in two phases, and an exchange of their heads' companions."""
    systems = [
        {"name": "drift", "phases": [{"name": "scaffold", "rounds": 3}], "adapter": "none"},
        {"name": "heads", "phases": [{"name": "fedper", "rounds": 2}], "adapter": "tent", "aggregator": "fedavg"},
    ]
    given = battery.tiny(systems=systems, phases=[], test={"batch_size": 5}, **more)
    given["scenario"]["new"] = False
    return parse(given)


@pytest.mark.parametrize("seconds", ["10", "0"])  # 0: everything is saved after every exchange
def test_every_exchange_is_at_most_one_message_to_each_node(tmp_path, monkeypatch, seconds):
    monkeypatch.setenv("ACCLIMATE_COMMIT_SECONDS", seconds)
    line = Inside(tmp_path)
    on_nodes(tmp_path / "runs", tiny(), line)
    kinds = [kind for kind, _ in line.asked]
    assert all(number <= 2 for _, number in line.asked)
    assert kinds.count("query") == 1
    assert kinds.count("train") == 3 + 2  # rounds
    # Four slots in each of two streams, so four exchanges and one message to begin; two tests without exchanges.
    assert kinds.count("evaluate") == 2 * (1 + 4) + 2 * 1


def test_knowledge_is_sent_once_and_then_only_what_is_shared(tmp_path):
    line = Inside(tmp_path)
    _, executor = on_nodes(tmp_path / "runs", tiny(), line)
    for id in line.nodes():
        sent = [name for kind, node, letter, _ in line.letters if node == id for name in letter.blobs]
        lasting = [name for name in sent if sent.count(name) > 1 and name != "records"]
        assert lasting == []
    model = 245_000  # bytes, of all parameters
    exchanges = [letter.size for kind, _, letter, _ in line.letters[-4:]]
    assert 0 < max(exchanges) < model / 20
    assert max(answer.size for _, _, _, answer in line.letters[-4:]) < model / 20
    assert executor.exchanges[-1].messages == 2


def test_states_of_clients_never_leave_their_nodes(tmp_path):
    line = Inside(tmp_path)
    on_nodes(tmp_path / "runs", tiny(), line)
    heads = [answer.blobs["records"] for kind, _, _, answer in line.letters if kind == "train"]
    assert len(heads) == 10
    fedper = [trees.load(blob) for blob in heads[6:]]
    assert all(not any("head" in name for name in one.result.reply.update) for answers in fedper for one in answers)
    assert all(isinstance(one.result.state.nest, Elsewhere) for answers in fedper for one in answers)


def test_a_run_on_nodes_is_exported_but_for_what_stays_there(tmp_path):
    chosen = experiment(seeds=[0])
    on_nodes(tmp_path / "runs", chosen, Inside(tmp_path))
    run(chosen, tmp_path / "runs")
    for name in (chosen.run_name, OnNodes.of(chosen).run_name):
        bundle = ac.Run.open(name, tmp_path / "runs").system("atp").export(tmp_path / name)
        assert (bundle / "model.safetensors").read_bytes() == (
            tmp_path / chosen.run_name / "model.safetensors"
        ).read_bytes()
    there = ac.Run.open(OnNodes.of(chosen).run_name, tmp_path / "runs")
    with pytest.raises(MissingKnowledge, match="model of client 1 is on its own machine and does not leave it"):
        there.system("heads").export(tmp_path / "heads", client=1)


# ---- who is interrupted ----


class Killed(BaseException):
    """The server dies: nothing catches it."""


@pytest.mark.parametrize("at", [3, 13, *(pytest.param(at, marks=pytest.mark.slow) for at in (1, 5, 7, 9, 16))])
def test_a_server_killed_anywhere_goes_on_to_the_same_result(tmp_path, at):
    """After a node has answered, and before the server has heard it: the node is then a message ahead."""
    chosen, count = tiny(), iter(range(100))

    def lose(kind, number, node):
        if next(count) == at:
            raise Killed

    with pytest.raises(Killed):
        on_nodes(tmp_path / "runs", chosen, Inside(tmp_path, lose=lose))
    found, _ = on_nodes(tmp_path / "runs", chosen, Inside(tmp_path))
    run(chosen, tmp_path / "alone")
    assert found == measured(tmp_path / "alone", chosen.run_name)


def test_an_answer_that_is_lost_costs_that_contribution_and_the_node_begins_from_before(tmp_path):
    """The lost clients' second round of SCAFFOLD counts for nothing, so that the third begins from the first."""
    lose = lambda kind, number, node: "no answer" if (kind, number, node) == ("train", 1, 101) else None  # noqa: E731
    line = Inside(tmp_path, lose=lose)
    on_nodes(tmp_path / "runs", tiny(), line)
    tokens = [
        {task.task.id: task.task.state and task.task.state.nest.digest for task in trees.load(letter.blobs["records"])}
        for kind, node, letter, _ in line.letters
        if kind == "train" and node == 101
    ]
    assert tokens[1] == tokens[2] != {1: None}


def test_a_node_that_is_gone_costs_its_clients_and_may_come_back(tmp_path):
    class Leaving(Inside):
        def ask(self, kind, letters, seconds):
            yield from super().ask(kind, letters, seconds)
            trained = sum(kind == "train" for kind, _ in self.asked)
            self.gone = {101} if trained in (2, 3) else set()

    line, said = Leaving(tmp_path), []
    there = OnNodes.of(tiny(), tmp_path / "runs")
    executor = OnLine(line, there, say=said.append)
    run(there, tmp_path / "runs", executor=executor)
    assert [number for kind, number in line.asked if kind == "train"] == [2, 2, 1, 1, 2]


@pytest.mark.parametrize("answers", ["lost", "rubbish"])
def test_a_client_whose_answers_never_counted_in_training_is_left_out_of_the_test(tmp_path, answers):
    class Mute(Inside):
        def changed(self, asked, id, answer):
            return spoilt(answer, of_all(of_others)) if (asked, id, answers) == ("train", 101, "rubbish") else answer

    lose = lambda kind, number, node: "no answer" if (kind, node, answers) == ("train", 101, "lost") else None  # noqa: E731
    there, heard = OnNodes.of(tiny(), tmp_path / "runs"), Heard()
    run(there, tmp_path / "runs", executor=OnLine(Mute(tmp_path, lose=lose), there, say=heard.say), listener=heard)
    with closing(Store(tmp_path / "runs" / STORE)) as store:
        tested = {entry.system: set(clients) for (entry, _, _), clients in store.find(there.run_name).counts.items()}
        remarks = {line.system: line.remarks for line in table(store.find(there.run_name)).lines}
    assert tested["heads"] == {0, 2}
    assert remarks["heads"] == ["without 1 client(s) that did not answer, so not of the same images as others"]
    assert tested["drift"] == {0, 1, 2}  # a model that everybody has
    assert any("client 1: no answer of its counted in training" in text for text in heard.texts)


def test_no_node_at_all_is_a_message_and_not_a_wait_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(executor_module, "LOOK_SECONDS", 0.01)
    with pytest.raises(TooFewNodes, match=r"expected 3 node\(s\) within 0.1 s, found 2; start SuperNodes"):
        on_nodes(tmp_path / "runs", tiny(), Inside(tmp_path), nodes=3, wait=0.1)

    class Leaving(Inside):
        def nodes(self):
            return [] if len(self.asked) > 3 else super().nodes()

    with pytest.raises(TooFewNodes, match="what was finished is saved"):
        on_nodes(tmp_path / "runs", tiny(), Leaving(tmp_path), wait=0.1)


# ---- who sends rubbish ----


def spoilt(answer, change):
    return answer._replace(blobs={"records": trees.dump(change(trees.load(answer.blobs["records"])))})


def of_all(change):
    return lambda answers: [one._replace(result=change(one.result)) for one in answers]


def infinite(result):
    if hasattr(result, "reply"):
        update = trees.transform(lambda tensor: tensor.float() / 0, result.reply.update)
        return result._replace(reply=result.reply._replace(update=update))
    return result._replace(scores=[score._replace(values={"correct": float("nan")}) for score in result.scores])


def of_others(result):
    if hasattr(result, "reply"):
        return result._replace(reply=result.reply._replace(update={"other": torch.ones(3)}))
    return result._replace(scores=[score._replace(client=0) for score in result.scores])


def endless(result):
    """Numbers that no file holds, and names that no file can be written with."""
    if hasattr(result, "reply"):
        reply = result.reply._replace(metrics={"loss": 10**30, "\ud800": 1.0})
        return result._replace(reply=reply, bytes_up=10**30)
    return result._replace(scores=[score._replace(slot=10**30, shift="\ud800") for score in result.scores])


def placeless(result):
    """Neither at the end nor anywhere else, and never."""
    return result if hasattr(result, "reply") else result._replace(paused=None, ended=False, slot=10**7)


RUBBISH = {
    "no nest": lambda answer: answer._replace(blobs={"records": b"rubbish"}),
    "nothing": lambda answer: answer._replace(blobs={}),
    "no JSON": lambda answer: answer._replace(text="]["),
    "too few": lambda answer: spoilt(answer, lambda answers: answers[1:]),
    "numbers": lambda answer: spoilt(answer, lambda answers: [1.0] * len(answers)),
    "infinite": lambda answer: spoilt(answer, of_all(infinite)),
    "of others": lambda answer: spoilt(answer, of_all(of_others)),
    "an error": lambda answer: answer._replace(text='{"error": "out of memory"}'),
    "an error in halves": lambda answer: answer._replace(text='{"error": "\\ud800"}'),
    "endless": lambda answer: spoilt(answer, of_all(endless)),
    "placeless": lambda answer: spoilt(answer, of_all(placeless)),
}


QUICK = ("no nest", "infinite", "of others", "endless", "placeless")


@pytest.mark.parametrize("kind", [k if k in QUICK else pytest.param(k, marks=pytest.mark.slow) for k in RUBBISH])
def test_rubbish_costs_who_sends_it_and_nobody_else(tmp_path, kind):
    class Spoiling(Inside):  # after the first round of a phase, in which clients get their first states
        def changed(self, asked, id, answer):
            begun = sum(k == "train" and node == id for k, node, _, _ in self.letters) not in (0, 3)
            return RUBBISH[kind](answer) if id == 101 and asked != "query" and begun else answer

    there = OnNodes.of(tiny(), tmp_path / "runs")
    heard = Heard()
    run(there, tmp_path / "runs", executor=OnLine(Spoiling(tmp_path), there, say=heard.say), listener=heard)
    with closing(Store(tmp_path / "runs" / STORE)) as store:
        rows = store.find(there.run_name).table()
    assert {row["system"] for row in rows} >= {"drift", "heads"}
    assert any("client 1" in text for text in heard.texts)
    assert all(map(is_text, heard.texts))


def test_an_answer_cannot_name_one_blob_many_times(tmp_path):
    """Each of them would be opened, and copied: honest nodes send every upload as part of the answer."""
    blob = trees.dump({"w": torch.ones(2)})

    class Sharing(Inside):
        def changed(self, asked, id, answer):
            if (asked, id) != ("train", 101):
                return answer
            name = digest_of(blob)
            named = spoilt(answer, of_all(lambda took: took._replace(state=Named(name, False))))
            return named._replace(blobs={**named.blobs, name: blob})

    there, heard = OnNodes.of(experiment(systems=["none"]), tmp_path / "runs"), Heard()
    run(there, tmp_path / "runs", executor=OnLine(Sharing(tmp_path), there, say=heard.say), listener=heard)
    assert any("client 1: its node sent something that cannot be read (KeyError" in text for text in heard.texts)


class Heard:
    def __init__(self):
        self.texts = []

    def begin(self, title, total): ...

    def end(self): ...

    def step(self, done, text):
        self.texts.append(text)

    say = __call__ = lambda self, text: self.texts.append(text)


def test_a_state_that_is_gone_is_named(tmp_path):
    class Forgetful(Inside):
        def ask(self, kind, letters, seconds):
            if sum(kind == "train" for kind, _ in self.asked) == 2:
                with closing(sqlite3.connect(next((tmp_path / "101").glob("*/node.sqlite")))) as db, db:
                    db.execute("DELETE FROM state")
            yield from super().ask(kind, letters, seconds)

    there, heard = OnNodes.of(tiny(), tmp_path / "runs"), Heard()
    run(there, tmp_path / "runs", executor=OnLine(Forgetful(tmp_path), there, say=heard.say), listener=heard)
    assert any("is not on this node" in text for text in heard.texts)


# ---- who claims the clients of others ----


class Claiming(Inside):
    """Nodes that say which part they serve, in the order in which they come."""

    def __init__(self, folder, parts):
        super().__init__(folder)
        self.parts = parts

    def nodes(self):
        return [id for id in self.parts if id not in self.gone]

    def node(self, id):
        return Node(self.folder / str(id), self.parts[id])


def test_a_node_that_cuts_clients_otherwise_gets_none(tmp_path):
    chosen, heard = experiment(systems=["none"]), Heard()
    line, there = Claiming(tmp_path, {99: (0, 1), 100: (0, 2), 101: (1, 2)}), OnNodes.of(chosen, tmp_path / "runs")
    run(there, tmp_path / "runs", executor=OnLine(line, there, say=heard.say), listener=heard)
    assert {node for kind, node, _, _ in line.letters if kind != "query"} == {100, 101}
    why = "it serves part 0 of 1, where most nodes serve parts of 2; give all of them the same num-partitions"
    assert heard.texts.count(f"node 99 does not take part for now: {why}") == 1


def test_a_node_gets_the_clients_of_another_when_that_is_gone(tmp_path):
    class Leaving(Claiming):
        def ask(self, kind, letters, seconds):
            yield from super().ask(kind, letters, seconds)
            self.gone = {101} if kind == "train" else self.gone

    chosen, heard = experiment(systems=["none"]), Heard()
    line, there = Leaving(tmp_path, {100: (0, 2), 101: (1, 2), 102: (1, 2)}), OnNodes.of(chosen, tmp_path / "runs")
    run(there, tmp_path / "runs", executor=OnLine(line, there, say=heard.say), listener=heard)
    assert [node for kind, node, _, _ in line.letters if kind == "train"] == [100, 101, 100, 102]
    why = "it serves part 1 of 2, and node 101 is there for these clients; give each node its own"
    assert f"node 102 does not take part for now: {why}" in heard.texts


@pytest.mark.parametrize("part", [[0, 0], [2, 2], [-1, 2], [0.5, 2], [0, 1e400], ["0", "2"], [0], None])
def test_a_node_that_serves_no_part_is_refused(tmp_path, part):
    class Odd(Inside):
        def changed(self, kind, id, answer):
            return answer._replace(text=json.dumps({**json.loads(answer.text), "part": part}))

    with pytest.raises(TooFewNodes, match="node 100 refused: it sent something that cannot be used"):
        on_nodes(tmp_path / "runs", tiny(), Odd(tmp_path), wait=0)


# ---- whose code is run ----

PLUGIN = """
from acclimate.adapters.none import NoAdaptation

class Mine(NoAdaptation):
    pass
"""


def test_a_node_imports_only_what_its_owner_lists(tmp_path):
    (tmp_path / "there").mkdir()
    for folder in (tmp_path, tmp_path / "there"):
        (folder / "mine.py").write_text(PLUGIN)
    (tmp_path / "plugged.yaml").write_text(yaml.safe_dump(battery.tiny(systems=["./mine.py:Mine"])))
    chosen = read(tmp_path / "plugged.yaml")
    with pytest.raises(TooFewNodes, match=r"nothing is imported that you did not list"):
        on_nodes(tmp_path / "runs", chosen, Inside(tmp_path), wait=0)
    listed = plugins.listed([f"{tmp_path}/there/mine.py:Mine"])
    found, _ = on_nodes(tmp_path / "runs", chosen, Inside(tmp_path, allowed=listed))
    assert {row["system"] for row in found[0]} == {"none", "./mine.py:Mine"}


def test_another_version_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(executor_module, "__version__", "0.0.1")
    with pytest.raises(TooFewNodes, match=r"the server runs acclimate 0.0.1, this node"):
        on_nodes(tmp_path / "runs", tiny(), Inside(tmp_path), wait=0)
