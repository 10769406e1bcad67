"""Published tables: every one of them stands for experiments that exist, and a wrong name is a message."""

import pytest
import yaml

import battery
from acclimate.errors import ConfigError
from acclimate.experiment import published
from acclimate.experiment.catalog import shipped

ROWS = {"none": "No adaptation", "em": "EM"}


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Reads a table of this content, whose experiment has the systems none and em."""
    experiment = tmp_path / "tiny.yaml"
    experiment.write_text(yaml.safe_dump(battery.tiny(systems=["none", "em"])))
    monkeypatch.setattr(published, "FOLDER", tmp_path / "published")
    (tmp_path / "published").mkdir()

    def write(**more):
        table = {
            "title": "Tiny",
            "source": "nobody",
            "experiment": str(experiment),
            "pieces": {"mild": ["scenario.noise=0.1"], "harsh": ["scenario.noise=0.8"]},
            "rows": ROWS,
        }
        (tmp_path / "published" / "tiny.yaml").write_text(yaml.safe_dump({**table, **more}))
        return published.published("tiny")

    return write


@pytest.mark.parametrize("name", published.names())
def test_published_table_names_shipped_experiments_and_their_systems(name):
    paper = published.published(name)  # refuses unknown systems, rows and pieces
    assert {piece.experiment for piece in paper.pieces.values()} <= set(shipped())
    for experiment in paper.experiments().values():
        assert any(system.name in paper.rows for system in experiment.systems)
    assert paper.deviations


def test_published_values_are_a_mean_with_or_without_spread_or_missing(written):
    paper = written(values={"EM": {"mild": [50.0, 1.5], "harsh": 40}})
    assert paper.printed("em", "mild") == (50.0, 1.5)
    assert (paper.mean("em", "mild"), paper.mean("em", "harsh")) == (50.0, 40.0)
    assert paper.mean("none", "mild") is None


def test_published_values_by_shift_have_a_mean(written):
    paper = written(by_shift=True, values={"EM": {"mild": {"fog": 41.0, "mean": 43.0}}})
    assert paper.printed("em", "mild") == {"fog": 41.0, "mean": 43.0}
    assert paper.mean("em", "mild") == 43.0


def test_published_pieces_may_be_of_other_experiments(written):
    paper = written(pieces={"mild": [], "elsewhere": {"experiment": "quickstart", "set": ["seeds=[7]"]}})
    experiments = paper.experiments()
    assert (experiments["mild"].name, experiments["elsewhere"].name) == ("tiny", "quickstart")
    assert experiments["elsewhere"].seeds == (7,)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rows": {"nome": "No adaptation"}}, "rows: no piece has a system 'nome'; did you mean 'none'"),
        ({"values": {"Em": {"mild": 1}}}, "values: no system gives the row 'Em'; Possible: EM, No adaptation"),
        ({"values": {"EM": {"mlid": 1}}}, "values.EM: unknown piece 'mlid'; did you mean 'mild'"),
        ({"values": {"EM": {"mild": {"fog": 1}}}}, "values.EM.mild: a mapping by shift goes with by_shift: true"),
        ({"claims": [{"piece": "mlid", "best": "em"}]}, "claims.0.piece: unknown piece 'mlid'; did you mean 'mild'"),
        ({"claims": [{"best": "emm"}]}, "claims.0: 'emm' is in no row; did you mean 'em'"),
        ({"claims": [{"higher": "em"}]}, "claims.0: expected either higher and lower, or best, or near"),
        ({"claims": [{"bset": "em"}]}, "claims.0.bset: unknown key"),
        ({"titel": "Tiny"}, "titel: unknown key; did you mean 'title'"),
        ({"experiment": None}, "pieces.mild: no experiment, here or at the top"),
    ],
)
def test_published_table_with_a_wrong_name_says_which(written, wrong, message):
    with pytest.raises(ConfigError) as error:
        written(**wrong)
    assert message in str(error.value)


def test_published_claim_about_a_piece_without_its_system_is_refused(written, tmp_path):
    alone = tmp_path / "alone.yaml"
    alone.write_text(yaml.safe_dump(battery.tiny(systems=["none"])))
    pieces = {"mild": [], "alone": {"experiment": str(alone)}}
    assert written(pieces=pieces, claims=[{"piece": "mild", "best": "em"}]).claims[0].best == "em"
    with pytest.raises(ConfigError, match="'em' is not tested in: alone"):
        written(pieces=pieces, claims=[{"best": "em"}])
