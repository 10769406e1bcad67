from xml.etree import ElementTree

import pytest
import yaml

import battery


@pytest.fixture
def tiny(call, tmp_path):
    """Run a tiny experiment."""

    def run(*overrides, **more):
        (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(battery.tiny(**more)))
        assert call("run", "tiny.yaml", *overrides, "--workers", "1")[0] == 0

    return run


def test_figures_are_written_beside_the_run_and_twice_the_same(call, tiny, tmp_path):
    tiny(systems=["fedamp+tent", "fedavg+tent", "ldawa+tent"])
    code, out, err = call("figures", "tiny")
    assert (code, err) == (0, "")
    paths = [tmp_path / line.removeprefix("written: ") for line in out.splitlines()]
    (run,) = {path.parent.parent.name for path in paths}
    kinds = [f"{kind}-{stream}" for stream in ("label", "feature") for kind in ("accuracy", "matrices", "weights")]
    assert [path.name for path in paths] == [f"{run}-{kind}.svg" for kind in kinds]
    first = [path.read_bytes() for path in paths]
    for content in first:
        ElementTree.fromstring(content)
    assert b"fedamp+tent" in first[1]
    assert b"ldawa+tent" not in first[1]  # it weighs layers, not clients
    assert call("figures", "tiny")[0] == 0
    assert [path.read_bytes() for path in paths] == first


def test_figures_of_a_chosen_slot_client_and_folder(call, tiny, tmp_path):
    tiny(systems=["fedamp+tent"])
    assert call("figures", "tiny", "--slot", "0", "--client", "4", "--seed", "0", "--out", "drawn")[0] == 0
    pictures = {path.name.split("-", 2)[2]: path.read_text() for path in (tmp_path / "drawn").iterdir()}
    assert "in slot 0" in pictures["matrices-label.svg"]
    assert "client 4" in pictures["weights-label.svg"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--slot", "77"), "nothing was exchanged in slot 77; the first exchange was in slot 0, the last in slot 1"),
        (("--client", "77"), "client 77 exchanged nothing; there are clients 3–5"),
        (("--seed", "77"), "has no seed 77; choose one of seed 0"),
    ],
)
def test_figures_of_something_that_is_not_there_say_what_is(call, tiny, words, message):
    tiny(systems=["fedamp+tent"])
    code, _, err = call("figures", "tiny", *words)
    assert code == 2
    assert message in err


def test_figures_compare_the_rates_of_several_runs(call, tiny, tmp_path):
    atp = {"name": "atp", "phases": [{"name": "atp", "rounds": 1}], "adapter": "atp"}
    for noise in (0.1, 0.8):
        tiny(f"scenario.noise={noise}", systems=[atp], seeds=[0, 1])
    names = [path.name for path in (tmp_path / "runs").iterdir() if path.is_dir()]
    code, out, _ = call("figures", *names, "--out", "drawn")
    assert code == 0
    assert out.count("rates") == 1
    picture = (tmp_path / "drawn" / f"{names[0]}-rates-compared.svg").read_text()
    words = [item.text for item in ElementTree.fromstring(picture.encode()).iter("{http://www.w3.org/2000/svg}text")]
    assert {"scenario.noise=0.1", "scenario.noise=0.8", "conv1", "linear5", "norm weight", "running mean"} <= set(words)


def test_figures_of_a_run_without_data_for_any_say_what_is_needed(call, tiny):
    tiny(test={"batch_size": "all"}, systems=["em"])
    code, out, err = call("figures", "tiny")
    assert (code, out) == (0, "")
    assert "nothing to draw; a picture needs streams of more than one slot" in err
