"""Every input that once ended in a traceback, a wrong table or a full memory; each stays here under a name."""

import sys

import pytest
import yaml

import battery
from acclimate import cli
from acclimate.experiment.reader import parse
from acclimate.experiment.written import Unreadable, load

LAUGHS = "a: &a [lol,lol,lol,lol,lol,lol,lol,lol,lol]\n" + "\n".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def run(monkeypatch, capsys, *words):
    """Exit code and messages of a command."""
    monkeypatch.setattr(sys, "argv", ["acclimate", *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    captured = capsys.readouterr()
    return ended.value.code, captured.out + captured.err


OVERRIDES = {
    "an open list": "seeds=[0",
    "an at sign": "name=@x",
    "a number that is text": 'x=!!int "x"',
    "a digit that is none": "systems.²=1",
    "no value": "name=",
    "no key": "=1",
    "dots only": "...=1",
    "a long name": f"name={'n' * 260}",
    "a huge seed": f"seeds=[{10**23}]",
    "a negative seed": "seeds=[-1]",
    "a seed beyond 32 bits": "seeds=[4294967296]",
    "a date that is none": "seeds=2020-99-99",
    "a deep nest": f"test={'[' * 500}{']' * 500}",
    "an infinite rate": "phases.0.local.lr=.inf",
    "a rate that is no number": "phases.0.local.lr=.nan",
    "a negative partition seed": "scenario.partition_seed=-1",
    "a key given twice": "test={batch_size: 5, batch_size: 6}",
    "a grid of a hundred million": "systems=[{name: tent, tune: {" + ", ".join(
        f"o{i}: [{', '.join(map(str, range(10)))}]" for i in range(8)
    ) + "}}]",
    "a name with a control character": 'systems=[{name: "a\\x1b[31m", adapter: none}]',
    "a number of rounds with 400 digits": f"phases.0.rounds={10**400}",
    "a list for a name": "name=[1, 2]",
    "a mapping for seeds": "seeds={a: 1}",
    "a set": "seeds=!!set {1, 2}",
    "a tag without a value": "seeds={name: !!int }",
    "binary": "name=!!binary aGVsbG8=",
}  # fmt: skip


@pytest.mark.parametrize("how", OVERRIDES)
def test_override_is_refused_in_words(how, monkeypatch, capsys, tmp_path):
    code, told = run(monkeypatch, capsys, "run", "quickstart", OVERRIDES[how], "--runs", str(tmp_path))
    assert code == 2
    assert "problem(s)" in told
    assert len(told) < 6000


FILES = {
    "billion laughs": LAUGHS,
    "a key twice": "name: a\nname: b\n",
    "a tag": "name: !!python/object/apply:os.system ['true']",
    "a recursive alias": "a: &a [*a]",
    "500 levels": "a: " + "[" * 500 + "]" * 500,
    "5000 levels": "a: " + "[" * 5000 + "]" * 5000,
    "two million characters": "name: " + "x" * 2_000_000,
    "a date": "name: 2020-99-99\nseeds: 2020-13-45",
    "not UTF-8": b"name: \xff\xfe",
    "a null byte": "name: a\x00b",
    "a list": "- 1",
    "a number": "7",
    "nothing": "",
}


@pytest.mark.parametrize("how", FILES)
def test_file_is_refused_in_words(how, monkeypatch, capsys, tmp_path):
    path = tmp_path / "experiment.yaml"
    path.write_bytes(FILES[how] if isinstance(FILES[how], bytes) else FILES[how].encode())
    code, told = run(monkeypatch, capsys, "run", str(path), "--runs", str(tmp_path / "runs"))
    assert code == 2
    assert "problem(s)" in told
    assert len(told) < 6000


def test_aliases_that_stay_small_are_welcome():
    assert load("a: &a {x: 1}\nb: *a\nc: {<<: *a, y: 2}") == {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": 2}}
    with pytest.raises(Unreadable, match="grows"):
        load(LAUGHS)


COMMANDS = {
    "runs in a device": ("run", "quickstart", "--runs", "/dev/null"),
    "a negative seed": ("show", "scenario", "twofold", "--seed", "-1"),
    "a preview of another kind": ("data", "preview", "x.txt"),
    "a preview nowhere": ("data", "preview", "/dev/null/x.png"),
    "a scenario with bad YAML": ("show", "scenario", "twofold", "size=[0"),
    "one client with nobody else": ("show", "scenario", "tgfl", "data=digits", "clients=1"),
    "data without a split": ("show", "scenario", "ttfl", "data=digits"),
    "an unknown thing": ("show", "\x1b[31mred"),
}


@pytest.mark.parametrize("how", COMMANDS)
def test_command_is_refused_in_words(how, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    code, told = run(monkeypatch, capsys, *COMMANDS[how])
    assert code == 2
    assert told and "Traceback" not in told and "\x1b" not in told


def test_names_with_markup_are_shown_as_they_are(monkeypatch, capsys, tmp_path):
    raw = battery.tiny(systems=[{"name": "[/red][bold]x[/]", "adapter": "none"}])
    path = tmp_path / "e.yaml"
    path.write_text(yaml.safe_dump(raw))
    code, told = run(monkeypatch, capsys, "run", str(path), "--runs", str(tmp_path / "runs"), "--workers", "1")
    assert code == 0
    assert "[/red][bold]x[/]" in told


def test_numbers_an_option_takes_are_finite():
    from acclimate.errors import ConfigError

    raw = battery.tiny(phases=[{"name": "fedavg", "rounds": 1, "local": {"lr": float("inf")}}])
    with pytest.raises(ConfigError, match=r"phases\.0\.local\.lr: expected a finite number"):
        parse(raw)
