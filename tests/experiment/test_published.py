"""Published tables: every one of them stands for experiments that exist, and a wrong name is a message."""

import itertools
import statistics

import pytest
import yaml

import battery
from acclimate.errors import ConfigError
from acclimate.experiment import catalog, published
from acclimate.experiment.catalog import shipped
from acclimate.experiment.published import ONLY, met
from acclimate.experiment.reader import parse
from acclimate.report.measured import mean_of

ROWS = {"none": "No adaptation", "em": "EM"}


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Reads a table of this content, whose experiment has the systems none and em."""
    experiment = tmp_path / "tiny.yaml"
    experiment.write_text(yaml.safe_dump(battery.tiny(systems=["none", "em"])))
    monkeypatch.setattr(catalog, "PUBLISHED", tmp_path / "published")
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
    assert paper.deviations or paper.source.startswith("none;")  # a table of our own deviates from nothing


def test_published_values_are_a_mean_with_or_without_spread_or_missing(written):
    paper = written(values={"EM": {"mild": [50.0, 1.5], "harsh": 40}})
    assert paper.printed("EM", "mild") == {ONLY: (50.0, 1.5)}
    assert paper.printed("EM", "harsh") == {ONLY: 40.0}
    assert paper.printed("No adaptation", "mild") == {}


def test_published_values_by_stream_are_of_all_clients_or_by_group(written):
    by_stream = {"label": {"svhn": [50.0, 1.0], "mean": 45}, "feature": 30, "mean": [37.5, 2]}
    found = written(values={"EM": {"mild": by_stream}}).printed("EM", "mild")
    assert found == {"label": {"svhn": (50.0, 1.0), "mean": 45.0}, "feature": 30.0, "mean": (37.5, 2.0)}


def test_published_values_by_shift_have_a_mean(written):
    paper = written(by_shift=True, values={"EM": {"mild": {"fog": 41.0, "mean": 43.0}}})
    assert paper.printed("EM", "mild") == {ONLY: {"fog": 41.0, "mean": 43.0}}
    paper = written(by_shift=True, values={"EM": {"mild": {"label": {"fog": 41.0, "mean": 43.0}, "mean": 20}}})
    assert paper.printed("EM", "mild") == {"label": {"fog": 41.0, "mean": 43.0}, "mean": 20.0}


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
        (
            {"values": {"EM": {"mild": 1}}, "by_shift": True},
            "values.EM.mild: expected values by shift (by_shift: true)",
        ),
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


DIGITS = {"label": {"svhn", "usps"}, "feature": set()}  # streams and the groups in them


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (
            {"values": {"EM": {"mild": 50}}},
            "values.EM.mild: say of which stream, as in {label: 50.0}; Possible: feature",
        ),
        (
            {"values": {"EM": {"mild": {"lable": 50}}}},
            "values.EM.mild: the run has no stream 'lable'; did you mean 'label'",
        ),
        ({"values": {"EM": {"mild": {"label": {"uspps": 50}}}}}, "the run has no group 'uspps'; did you mean 'usps'"),
        (
            {"values": {"EM": {"mild": {"mean": {"usps": 50}}}}},
            "the mean over streams is one value; found {'usps': 50.0}",
        ),
        (
            {"claims": [{"stream": "fog", "best": "em"}]},
            "claims.0, piece 'mild': the run has no stream 'fog'; Possible: fe",
        ),
        (
            {"claims": [{"group": "mnist", "best": "em"}]},
            "claims.0, piece 'mild': nobody is of group 'mnist'; Possible: sv",
        ),
        (
            {"claims": [{"stream": "feature", "group": "usps", "best": "em"}]},
            "nobody is of group 'usps'; Possible: nothing",
        ),
    ],
)
def test_published_values_and_claims_about_what_a_run_has_not_are_named(written, entries, message):
    (problem,) = written(**entries).unmet("mild", DIGITS)
    assert message in problem


def test_published_values_and_claims_about_what_a_run_has_are_fine(written):
    values = {"EM": {"mild": {"label": {"usps": 50, "mean": 40}, "mean": 30}}}
    claims = [
        {"stream": ["label", "mean"], "group": "usps", "best": "em"},
        {"piece": "harsh", "stream": "x", "best": "em"},
    ]
    assert list(written(values=values, claims=claims).unmet("mild", DIGITS)) == []
    assert list(written(values={"EM": {"mild": 50}}).unmet("mild", {"label": {"usps"}})) == []


def test_published_values_of_shifts_are_checked_where_shifts_are_known(written):
    paper = written(by_shift=True, values={"EM": {"mild": {"fgo": 41.0, "mean": 43.0}}})
    assert list(paper.unmet("mild", {"label": {"usps"}})) == []
    (problem,) = paper.unmet("mild", {"label": {"usps"}}, {"label": {"fog"}})
    assert problem == "values.EM.mild: the run has no shift 'fgo'; did you mean 'fog'? Possible: fog, mean"


def test_met_has_the_streams_and_groups_that_a_run_will_have():
    assert met(parse(battery.tiny())) == {"label": set(), "feature": set()}
    assert met(parse(battery.tiny(test={"validation": True}))).keys() == {"label", "feature", "validation"}
    turned = {"name": "upfl-rotation", "data": "digits"}
    assert met(parse(battery.tiny(scenario=turned, seeds=[0, 1], test={"validation": True}))) == {
        "test": {"15°", "45°"},
        "validation": {"0°", "30°", "60°"},
    }


def _mean(printed):
    """The printed mean, or that of the groups or shifts that are printed."""
    if not isinstance(printed, dict) or mean_of(printed) is not None:
        return mean_of(printed)
    return statistics.fmean(mean_of(value) for value in printed.values())


@pytest.mark.parametrize("name", published.names())
def test_claims_hold_on_the_values_that_the_paper_prints(name):
    """A claim is what the paper leads one to expect, so it cannot contradict the paper."""
    paper = published.published(name)
    for claim in paper.claims:
        for piece, higher, lower in itertools.product(claim.piece or paper.pieces, claim.higher, claim.lower):
            above, below = (paper.printed(paper.rows[system], piece) for system in (higher, lower))
            for stream in set(above) & set(below) & {ONLY, *(claim.stream or above)}:
                a, b = _mean(above[stream]), _mean(below[stream])
                if a is not None and b is not None:
                    assert a > b, (piece, stream, higher, lower)
