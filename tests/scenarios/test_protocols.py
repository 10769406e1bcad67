"""The published protocols on real data: their counts are the specification's. Skipped by name without the data."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import toys
from acclimate.data import sources
from acclimate.data.augment import Crops
from acclimate.data.image_shifts import Rotation
from acclimate.data.packs import write_pack
from acclimate.data.twins import twins
from acclimate.errors import ConfigError
from acclimate.experiment.catalog import SCENARIOS
from acclimate.scenarios.picture import picture
from acclimate.scenarios.population import Blend, Holding, Plan, StreamPlan, realise
from acclimate.scenarios.timetable import Timetable

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture
def data(monkeypatch):
    """Packs by name; a test that asks for one that is not here is skipped."""

    def need(*files):
        for name in files:
            if not (DATA / name).exists():
                pytest.skip(f"data set not here: {name}")
        monkeypatch.setenv("ACCLIMATE_DATA", str(DATA))

    return need


def plan(name, seed=0, **options):
    return SCENARIOS[name].load()(**options).plan(seed)


def sizes(chosen):
    return [(len(train.rows), len(check.rows)) for train, check in chosen.source.values()]


def histogram(chosen, rows):
    return np.bincount(chosen.dataset.labels[rows], minlength=chosen.dataset.classes)


def all_rows(chosen):
    return [h.rows for pair in chosen.source.values() for h in pair] + [
        h.rows for s in chosen.streams for h in s.segments
    ]


def rows_of(stream):
    """The rows of a stream, whatever it is made of."""
    holdings = [h for s in stream.segments for h in (s.parts if isinstance(s, Blend) else [s])]
    return np.concatenate([h.rows for h in holdings])


def training_rows(chosen):
    """All rows that anybody trains or validates on."""
    return np.concatenate([h.rows for pair in chosen.source.values() for h in pair])


@pytest.mark.parametrize("shift", ["feature", "label", "hybrid"])
def test_ttpfl_has_240_source_and_60_new_clients(data, shift):
    data("cifar10_jpeg.npz")
    chosen = plan("ttpfl", shift=shift)
    assert set(sizes(chosen)) == {(160, 40)}
    assert (len(chosen.source), len(chosen.streams)) == (240, 60)
    used = np.concatenate(all_rows(chosen))
    assert len(used) == len(set(used.tolist())) == 60_000


def test_ttpfl_counts_are_those_of_the_authors_partition(data):
    data("cifar10_jpeg.npz")
    golden = toys.golden("atp/partition_counts.npz")
    chosen = plan("ttpfl", shift="hybrid")
    found = {id: histogram(chosen, np.concatenate([t.rows, c.rows])) for id, (t, c) in chosen.source.items()}
    found |= {s.client: histogram(chosen, s.segments[0].rows) for s in chosen.streams}
    assert np.array_equal(np.stack([found[id] for id in range(300)]), golden["cifar10_step_2_16"])


def test_ttpfl_new_clients_meet_other_corruptions(data):
    data("cifar10_jpeg.npz")
    chosen = plan("ttpfl", shift="feature")
    source = {train.shift.kind for train, _ in chosen.source.values()}
    new = {s.segments[0].shift.kind for s in chosen.streams}
    assert len(source) == 15
    assert new == {"speckle_noise", "gaussian_blur", "saturate", "spatter"}
    assert {train.shift.severity for train, _ in chosen.source.values()} == {1, 2, 3, 4, 5}
    assert {histogram(chosen, s.segments[0].rows).tolist()[0] for s in chosen.streams} == {20}


def test_ttpfl_domains_leaves_one_out(data):
    data("pacs_64.npz")
    chosen = plan("ttpfl-domains", data="pacs", target="sketch")
    assert (len(chosen.source), len(chosen.streams)) == (21, 7)
    domain = chosen.dataset.columns["domain"]
    names = chosen.dataset.names["domain"]
    assert {names[d] for s in chosen.streams for d in domain[s.segments[0].rows]} == {"sketch"}
    assert {chosen.groups[s.client] for s in chosen.streams} == {"sketch"}
    for client, (train, _) in chosen.source.items():
        assert {names[d] for d in domain[train.rows]} == {chosen.groups[client]}
    assert sum(map(len, all_rows(chosen))) == 9991
    with pytest.raises(ConfigError, match="unknown domain 'skech'; did you mean 'sketch'"):
        plan("ttpfl-domains", target="skech")


def test_ttpfl_domains_of_digits_have_743_images_a_client(data):
    data("mnist.npz", "svhn_jpeg.npz", "usps.npz", "mnist_m_jpeg.npz", "chars74k_font_digits.npz")
    here = ("mnist", "usps", "font-digits")
    chosen = plan("ttpfl-domains", data="digits-5", target="usps", domains=here)
    assert (len(chosen.source), len(chosen.streams)) == (20, 10)
    lengths = [a + b for a, b in sizes(chosen)] + [len(s.segments[0].rows) for s in chosen.streams]
    assert 550 < min(lengths) <= max(lengths) < 1100  # USPS has twice as many zeros as eights
    assert sum(lengths) == 3 * 7438


def test_upfl_gives_two_shards_to_each_of_100_clients(data):
    data("mnist.npz")
    chosen = plan("upfl", data="mnist")
    assert (len(chosen.source), len(chosen.streams)) == (50, 50)
    assert set(sizes(chosen)) == {(595, 105)}
    assert max((histogram(chosen, s.segments[0].rows) > 0).sum() for s in chosen.streams) <= 4  # shards cross classes


@pytest.mark.parametrize(("name", "thirds"), [("mnist", (7, 7, 9)), ("fashion-mnist", (0, 0, 0))])
def test_upfl_shards_cross_classes_where_these_differ_in_size(data, name, thirds):
    data(f"{name.replace('-', '_')}.npz")
    found = []
    for seed in range(3):
        chosen = plan("upfl", seed, data=name)
        held = [np.concatenate([h.rows for h in pair]) for pair in chosen.source.values()]
        held += [rows_of(stream) for stream in chosen.streams]
        found.append(sum((histogram(chosen, rows) > 0).sum() > 2 for rows in held))
    assert tuple(found) == thirds  # as the deviations of fedtta-table1 say


def test_upfl_cifar10_has_two_distinct_classes_510_90_600(data):
    data("cifar10_jpeg.npz")
    chosen = plan("upfl", data="cifar10")
    assert set(sizes(chosen)) == {(510, 90)}
    assert {len(s.segments[0].rows) for s in chosen.streams} == {600}
    assert {int((histogram(chosen, s.segments[0].rows) > 0).sum()) for s in chosen.streams} == {2}


def test_upfl_dirichlet_gives_the_test_set_to_new_clients(data):
    data("cifar10_jpeg.npz")
    chosen = plan("upfl", data="cifar10", partition="dirichlet", test_alpha=0.5)
    split = chosen.dataset.columns["split"]
    assert (len(chosen.source), len(chosen.streams)) == (50, 50)
    assert {int(s) for rows in (p.rows for pair in chosen.source.values() for p in pair) for s in split[rows]} == {0}
    assert {int(s) for stream in chosen.streams for s in split[stream.segments[0].rows]} == {1}


@pytest.mark.parametrize(("alpha", "least"), [(0.01, 15), (0.03, 5)])
def test_upfl_dirichlet_leaves_clients_without_images_out(data, alpha, least):
    data("cifar10_jpeg.npz")
    chosen = plan("upfl", data="cifar10", partition="dirichlet", test_alpha=alpha)
    gone = 50 - len(chosen.streams)
    assert gone >= least
    assert len(chosen.source) == 50
    assert all(len(s.segments[0].rows) for s in chosen.streams)
    assert [s.client for s in chosen.streams] == list(range(50, 100 - gone))
    there = sum(len(s.segments[0].rows) for s in chosen.streams)
    assert 9900 < there < 10_000  # whole numbers: a few images per class belong to nobody
    said = f"left out by Dir({alpha:g}), cut to whole images: {gone} of 50 new clients and {10_000 - there} of 10000"
    assert any(remark.startswith(said) for remark in chosen.remarks)


def test_upfl_test_share_and_public_data(data):
    data("cifar10_jpeg.npz")
    chosen = plan("upfl", data="cifar10", test_share=0.1, public=0.1)
    assert {len(s.segments[0].rows) for s in chosen.streams} <= set(range(50, 60))
    assert len(chosen.public.rows) == 6000
    used = np.concatenate([*all_rows(chosen), chosen.public.rows])
    assert len(used) == len(set(used.tolist()))


def test_upfl_by_writer(data):
    data("mnist.npz", "mnist_writers.npz")
    chosen = plan("upfl", data="mnist-writers", clients=60)
    writer = chosen.dataset.columns["writer"]
    assert {len(set(writer[s.segments[0].rows])) for s in chosen.streams} == {1}


def test_upfl_without_the_column_says_what_is_possible(data):
    data("cifar10_jpeg.npz")
    with pytest.raises(ConfigError, match="no writer for its images; possible"):
        plan("upfl", data="cifar10", partition="writer")


@pytest.mark.parametrize("partition", ["shards", "dirichlet"])
@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"clients": 1}, "clients: 1 with new: 0.5 makes 1 and 0"),
        ({"clients": 10, "new": 1.0}, "clients: 10 with new: 1 makes 0 and 10"),
        ({"clients": 10, "new": 0.01}, "clients: 10 with new: 0.01 makes 10 and 0"),
    ],
)
def test_upfl_needs_clients_that_train_and_new_ones(partition, options, found):
    with pytest.raises(ConfigError, match=f"expected clients that train and new ones; {found}; possible: clients of"):
        plan("upfl", data="digits", partition=partition, **options)


@pytest.fixture
def small_cifar100(tmp_path, monkeypatch):
    """CIFAR-100 in form, small and blank: it is not at hand."""
    labels = np.arange(600) % 100
    images = np.zeros((600, 32, 32, 3), dtype=np.uint8)
    write_pack(tmp_path / "cifar100.npz", images, labels, {"superclass": labels // 5, "writer": np.arange(600) % 30})
    monkeypatch.setenv("ACCLIMATE_DATA", str(tmp_path))


@pytest.mark.parametrize(("clients", "possible"), [(10, 20), (110, 120)])
def test_upfl_cuts_all_superclasses_alike_or_says_how_many_clients_can_be(small_cifar100, clients, possible):
    assert len(all_rows(plan("upfl", data="cifar100"))) == 50 * 2 + 50
    with pytest.raises(ConfigError, match=f"expected a multiple of 20.*found {clients}; possible: {possible}"):
        plan("upfl", data="cifar100", clients=clients)


def test_upfl_with_fewer_writers_than_clients_says_so(small_cifar100):
    chosen = plan("upfl", data="cifar100", partition="writer", clients=31)
    assert (len(chosen.source), len(chosen.streams)) == (15, 15)
    assert chosen.remarks == ["30 clients instead of 31: 'cifar100' has no more writers"]
    assert plan("upfl", data="cifar100", partition="writer", clients=30).remarks == []


def test_upfl_counts_clients_left_out_also_where_all_images_are_used(two_cifars):
    """With so small an alpha a class goes to one client as a whole: ten classes leave half of twenty without any."""
    chosen = plan("upfl", data="cifar10", partition="dirichlet", clients=40, test_alpha=1e-6)
    gone = 20 - len(chosen.streams)
    assert gone >= 10
    assert f"{gone} of 20 new clients and 0 of 200 images" in chosen.remarks[-1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"angles": ()}, "- angles: expected at least one angle; found none"),
        ({"test_angles": ()}, "- test_angles: expected at least one angle; found none"),
        ({"clients": 1}, "clients: expected at least 2, one that trains and a new one; found 1"),
    ],
)
def test_upfl_rotation_without_angles_or_clients_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        plan("upfl-rotation", data="digits", **options)


def test_upfl_rotation_groups_clients_by_angle():
    chosen = plan("upfl-rotation", data="digits")
    turned = {client: train.shift for client, (train, _) in chosen.source.items()}
    turned |= {stream.client: stream.segments[0].shift for stream in chosen.streams}
    assert len(turned) == 50
    assert chosen.groups == {client: f"{shift.degrees:g}°" for client, shift in turned.items()}
    assert realise(chosen, 0).groups == chosen.groups


def test_upfl_rotation_turns_new_clients_otherwise(data):
    data("mnist.npz")
    chosen = plan("upfl-rotation")
    assert {train.shift.degrees for train, _ in chosen.source.values()} == {0, 30, 60}
    assert {s.segments[0].shift.degrees for s in chosen.streams} == {15, 45}
    assert {a + b for a, b in sizes(chosen)} == {20}
    assert (len(chosen.source), len(chosen.streams)) == (25, 25)


def test_ttfl_map_is_the_papers(data):
    data("cifar10_jpeg.npz")
    golden = toys.golden("tsa/tsa_golden.npz")
    chosen = plan("ttfl")
    from acclimate.data.corruptions import KINDS

    found = [[KINDS.index(segment.shift.kind) for segment in s.segments] for s in chosen.streams]
    assert np.array_equal(found, golden["map_SH0.2"])
    assert {len(segment.rows) for s in chosen.streams for segment in s.segments} == {500}
    first = chosen.streams[0].segments
    assert all(np.array_equal(segment.rows, first[0].rows) for segment in first)  # same images for every corruption


@pytest.mark.parametrize("loops", [1, 2, 3, 4, 7])
def test_ttfl_passes_are_the_papers(data, loops):
    data("cifar10_jpeg.npz")
    golden = toys.golden("tsa/tsa_golden.npz")
    segments = plan("ttfl", loops=loops).streams[0].segments
    assert len(segments) == 15 * loops
    assert [len(segment.rows) // 10 for segment in segments[::15]] == golden[f"slots_loop{loops}"].tolist()


def test_ttfl_case_study_reverses_the_third_group(data):
    data("cifar10_jpeg.npz")
    groups = {"clients": 10, "sizes": (4, 3, 3), "leads": (0, 1, 0), "reversed": (2,)}  # the paper's Table 4
    kinds = [[segment.shift.kind for segment in s.segments] for s in plan("ttfl", **groups).streams]
    assert len(kinds) == 10
    assert kinds[4][:14] == kinds[0][1:]  # group 2 leads group 1 by one
    assert kinds[7] == kinds[0][::-1]


def test_ttfl_source_is_one_client_with_the_clean_training_set(data):
    data("cifar10_jpeg.npz")
    chosen = plan("ttfl")
    assert sizes(chosen) == [(50_000, 0)]


def test_tgfl_has_five_streams_per_client(data):
    data("cifar10_jpeg.npz")
    chosen = plan("tgfl")
    names = [s.name for s in chosen.streams if s.client == 3]
    assert names == ["ind", "ind-shifted", "exd", "exd-shifted", "mix"]
    own = {s.name: s.segments[0].rows for s in chosen.streams if s.client == 3 and s.name != "mix"}
    train, check = chosen.source[3]
    held = set(train.rows.tolist()) | set(check.rows.tolist())
    assert not held & set(own["ind"].tolist())  # a fixed split: nothing leaks
    assert not set(own["ind"].tolist()) & set(own["exd"].tolist())
    assert len(own["ind"]) == len(own["ind-shifted"])
    counts = {name: sum(s.name == name for s in chosen.streams) for name in names}
    assert set(counts.values()) == {20}
    (mix,) = next(s for s in chosen.streams if s.client == 3 and s.name == "mix").segments
    assert len({len(part.rows) for part in mix.parts}) == 1  # equal parts of the four
    assert sorted(mix.order.tolist()) == list(range(4 * len(mix.parts[0].rows)))


def test_tgfl_may_let_clients_train_on_moved_images_and_is_then_another_population():
    small = {"data": "digits", "clients": 2, "alpha": 10.0, "most": 200}
    plans = [plan("tgfl", **small, augment=augment) for augment in (None, Crops(margin=2), Crops(margin=1))]
    still, moved, other = (realise(replace(one, streams=()), 0) for one in plans)
    assert (still.augment, moved.augment) == (None, Crops(margin=2))
    assert len({still.digest, moved.digest, other.digest}) == 3
    assert len({repr([rows_of(stream).tolist() for stream in one.streams]) for one in plans}) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"data": "cifar10"},
        {"data": "tiny-imagenet", "clients": 10},
        {"data": "office-caltech10", "clients": 10, "natural": "webcam", "size": 32},
    ],
    ids=lambda options: options["data"],
)
def test_tgfl_tests_nothing_that_anybody_trained_on(data, options):
    data("cifar10_jpeg.npz", "tiny_imagenet_100c_32.npz", "office_caltech10_64.npz")
    chosen = plan("tgfl", **options)
    used = training_rows(chosen)
    assert len(used) == len(np.unique(used))
    for stream in chosen.streams:
        assert not np.isin(rows_of(stream), used).any()
    kinds = twins(chosen.dataset)
    assert not np.isin(kinds[np.concatenate([rows_of(s) for s in chosen.streams])], kinds[used]).any()


def test_tgfl_parts_are_60_20_20_and_external_streams_are_as_long(data):
    data("cifar10_jpeg.npz")
    chosen = plan("tgfl")
    own = {s.client: s for s in chosen.streams if s.name == "ind"}
    total = 0
    for client, (train, check) in chosen.source.items():
        held = len(train.rows) + len(check.rows) + len(rows_of(own[client]))
        assert (len(train.rows), len(check.rows)) == pytest.approx((0.6 * held, 0.2 * held), abs=1)
        assert {len(rows_of(s)) for s in chosen.streams if s.client == client and s.name != "mix"} == {
            len(rows_of(own[client]))
        }
        total += held
    assert 49_000 < total <= 50_000  # a class that finds every client full is dropped


def test_tgfl_external_labels_are_those_of_all_others(data):
    """Dir(0.1) leaves a client about half of the classes; its external stream has them all, about evenly."""
    data("cifar10_jpeg.npz")
    chosen = plan("tgfl")
    by_name = {(s.client, s.name): s for s in chosen.streams}
    local, external = [], []
    for client in chosen.source:
        here, away = (histogram(chosen, rows_of(by_name[client, name])) for name in ("ind", "exd"))
        others = sum(histogram(chosen, rows_of(by_name[k, "ind"])) for k in chosen.source if k != client)
        local.append((here > 0).sum())
        external.append((away > 0).sum())
        assert np.abs(away / away.sum() - others / others.sum()).max() < 0.08  # five standard errors at 259 images
        assert np.array_equal(away, histogram(chosen, rows_of(by_name[client, "exd-shifted"])))
    assert np.mean(local) < 6
    assert set(external) == {10}


def test_tgfl_leaves_a_domain_to_natural_shift(data):
    data("office_caltech10_64.npz")
    chosen = plan("tgfl", data="office-caltech10", clients=10, natural="webcam", size=32)
    names, domain = chosen.dataset.names["domain"], chosen.dataset.columns["domain"]
    away = names.index("webcam")
    assert away not in domain[training_rows(chosen)]
    assert len(chosen.source) == 10
    dealt = []
    for stream in chosen.streams:
        if stream.name in ("ind", "exd"):
            assert away not in domain[rows_of(stream)]
        elif stream.name != "mix":
            corrupted, natural = stream.segments[0].parts
            assert len(corrupted.rows) == len(natural.rows)
            assert set(domain[natural.rows]) == {away}
            dealt += natural.rows.tolist() if stream.name == "ind-shifted" else []
    assert len(dealt) == len(set(dealt))
    assert not chosen.remarks


def test_tgfl_says_what_its_shift_is_made_of(two_cifars):
    assert "corrupted images only" in plan("tgfl", clients=5, alpha=1.0).remarks[0]
    assert not plan("tgfl", clients=5, alpha=1.0, natural="cifar10.1").remarks
    with pytest.raises(ConfigError, match=r"neither a domain of cifar10 nor a data set; did you mean 'cifar10.1'"):
        plan("tgfl", natural="cifar10_1")


def test_blend_mixes_clean_and_shifted_images_in_one_batch():
    dataset = SCENARIOS["twofold"].load()(size=18).plan(0).dataset
    parts = [Holding(np.array([3, 1])), Holding(np.array([1, 2]), Rotation(90))]
    blend = Blend(parts, np.array([2, 0, 3, 1]), "both")
    people = realise(Plan(dataset, {}, [StreamPlan(0, "s", [blend])]), 0)
    (slot,) = people.streams[0].slots(4)
    batch = people.examples(slot.parts[0])
    raw = dataset.images.bytes(torch.arange(5)) / 255
    turned = Rotation(90)(dataset.images.bytes(torch.arange(5)), range(5), 0) / 255
    assert torch.equal(batch.x, torch.stack([turned[1], raw[3], turned[2], raw[1]]))
    assert batch.y.tolist() == dataset.labels[[1, 3, 2, 1]].tolist()


def test_domain_shift_tests_clients_on_their_own_domain_corrupted(data):
    data("office_caltech10_64.npz")
    chosen = plan("domain-shift")
    assert len(chosen.source) == 4
    assert [s.name for s in chosen.streams if s.client == 0] == ["original", "corrupted"]
    domain, names = chosen.dataset.columns["domain"], chosen.dataset.names["domain"]
    for client, (train, _) in chosen.source.items():
        assert {names[d] for d in domain[train.rows]} == {chosen.groups[client]}


def test_domain_shift_tests_everybody_on_the_domain_left_out(data):
    data("office_caltech10_64.npz")
    chosen = plan("domain-shift", shift="domain", target="dslr")
    assert len(chosen.source) == len(chosen.streams) == 3
    assert {len(s.segments[0].rows) for s in chosen.streams} == {31}  # a fifth, as a client of its own would be tested


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shift": "domain"}, "target: shift: domain leaves out a domain; possible: amazon, caltech10, dslr, webcam"),
        ({"shift": "domain", "target": "dslt"}, "target: unknown domain 'dslt'; did you mean 'dslr'"),
        ({"target": "dslr"}, "target: a domain is left out by shift: domain only; found shift: covariate"),
        ({"clients_per_domain": 130}, "expected at least two images to train on for each of 130 clients"),
        ({"test": 0.0}, "and some to test, found 958 and 0"),
        ({"test": 1.0}, "found 0 and 958"),
    ],
)
def test_domain_shift_says_what_cannot_be(data, options, message):
    data("office_caltech10_64.npz")
    with pytest.raises(ConfigError, match=re.escape(message)):
        plan("domain-shift", **options)


FIVE = ("mnist.npz", "svhn_jpeg.npz", "usps.npz", "chars74k_font_digits.npz", "mnist_m_jpeg.npz")


def identities(chosen, rows):
    """What each digit is a picture of, by what the packs tell: MNIST's digit, a photograph, a font, else itself."""
    columns, names = chosen.dataset.columns, chosen.dataset.names["domain"]
    first = {name: int(np.flatnonzero(columns["domain"] == i)[0]) for i, name in enumerate(names)}
    found = set()
    for row in rows.tolist():
        name, split = names[columns["domain"][row]], int(columns["split"][row])
        at = {
            "mnist": ("digit", split, row - first["mnist"] - 60_000 * split),
            "mnist-m": ("digit", split, int(columns["mnist_index"][row])),
            "svhn": ("photo", split, int(columns["photo"][row])),
            "font-digits": ("font", int(columns["font"][row])),
            "usps": ("usps", row),
        }
        found.add(at[name])
    return found


@pytest.mark.parametrize(
    "options",
    [{}, {"most": 7438}, {"clients_per_domain": 4}, {"shift": "domain", "target": "mnist-m", "most": 7438}],
    ids=["covariate", "more", "clients", "domain"],
)
def test_domain_shift_digits_have_no_twin_in_train_and_test(data, options):
    data(*FIVE)
    chosen = plan("domain-shift", data="digits-5", **options)
    split = chosen.dataset.columns["split"]
    used, seen = training_rows(chosen), np.concatenate([rows_of(s) for s in chosen.streams])
    assert set(split[used]) == {0, -1}
    assert set(split[seen]) <= {1, -1}
    assert not identities(chosen, used) & identities(chosen, seen)


def test_domain_shift_keeps_photographs_and_fonts_on_one_side_of_validation(data):
    data(*FIVE)
    chosen = plan("domain-shift", data="digits-5", most=7438, clients_per_domain=3)
    names = chosen.dataset.names["domain"]
    whole = [(c // 3, identities(chosen, h.rows)) for c, pair in chosen.source.items() for h in pair]
    for domain in (names.index("svhn"), names.index("font-digits")):
        parts = [found for d, found in whole if d == domain]
        assert sum(map(len, parts)) == len(set.union(*parts))


def test_domain_shift_digits_have_743_images_a_domain_whatever_the_clients(data):
    data(*FIVE)
    for each in (1, 4):
        chosen = plan("domain-shift", data="digits-5", clients_per_domain=each)
        assert len(chosen.source) == 5 * each
        assert len(training_rows(chosen)) == 5 * 743
        assert sum(len(rows_of(s)) for s in chosen.streams if s.name == "original") == 5 * 1860
        assert min(a for a, _ in sizes(chosen)) > 0.8 * 743 / each
        assert all(b for _, b in sizes(chosen))
    assert chosen.remarks == ["computer fonts (font-digits) stand in for SynthDigits"]


def test_domain_shift_has_no_equal_images_in_train_and_test(data):
    data("office_caltech10_64.npz")
    for seed in range(5):
        chosen = plan("domain-shift", seed)
        pixels = chosen.dataset.images.pixels.numpy()
        used = {pixels[row].tobytes() for row in training_rows(chosen)}
        assert not any(pixels[row].tobytes() in used for s in chosen.streams for row in rows_of(s))
        assert len(training_rows(chosen)) + sum(len(rows_of(s)) for s in chosen.streams if s.name == "original") == 2533


def test_writers_train_on_employees_and_test_on_students(data):
    data("mnist.npz", "mnist_writers.npz")
    chosen = plan("writers")
    columns = chosen.dataset.columns
    assert {int(h) for train, _ in chosen.source.values() for h in columns["hsf"][train.rows]} == {0}
    assert {int(h) for s in chosen.streams for h in columns["hsf"][s.segments[0].rows]} == {4}
    assert len(chosen.source) > 200
    assert len(chosen.streams) > 100


def test_scenarios_depend_on_their_seed_and_on_nothing_else(data):
    data("mnist.npz", "mnist_writers.npz")
    first, again, other = (all_rows(plan("writers", seed)) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert any(not np.array_equal(a, b) for a, b in zip(first, other, strict=False))


def test_partition_seed_holds_the_population_fixed():
    fixed = [SCENARIOS["twofold"].load()(size=18, partition_seed=3).build(seed).digest for seed in (0, 1)]
    free = [SCENARIOS["twofold"].load()(size=18).build(seed).digest for seed in (0, 1)]
    assert fixed[0] == fixed[1]
    assert free[0] != free[1]


def test_timetable_reads_as_it_is_written():
    table = {"0-1": ("clean", "rotation 30 x 2"), 2: ("noise 0.2 + rotation 10",)}
    chosen = Timetable(table=table, per_segment=5).plan(0)
    met = {s.client: [h.shift.name for h in s.segments] for s in chosen.streams}
    assert met == {
        10: ["clean", "rotation 30", "rotation 30"],
        11: ["clean", "rotation 30", "rotation 30"],
        12: ["noise 0.2 + rotation 10"],
    }
    drawn = picture(Timetable(table=table, per_segment=5).build(0))
    assert "  10 test           abb" in drawn
    assert "b  rotation 30" in drawn


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"a": ("clean",)}, "expected clients such as '3' or '0-4'; found 'a'"),
        ({"0-2": ("clean",), "1": ("clean",)}, "client 1 is there twice"),
        ({"0": ("fogg 5",)}, "did you mean 'fog'"),
        ({"0": ("fog five",)}, "expected a number after 'fog'"),
        ({"0": ("clean x 9999",)}, "needs 199980 images"),
    ],
)
def test_timetable_names_what_is_wrong(table, message):
    with pytest.raises(ConfigError, match=message):
        Timetable(table=table).plan(0)


@pytest.fixture
def two_cifars(tmp_path, monkeypatch):
    """CIFAR-10 and CIFAR-10.1 in form, small and made of noise: the real CIFAR-10.1 is not at hand."""
    rng = np.random.default_rng(0)
    classes = sources.find("cifar10").labels
    for name, file, size in (("cifar10", "cifar10.npz", 1200), ("cifar10.1", "cifar10_1.npz", 200)):
        assert file in sources.find(name).files
        labels = np.arange(size) % 10
        split = (np.arange(size) >= size - 200).astype(np.uint8) if name == "cifar10" else np.ones(size, np.uint8)
        images = rng.integers(0, 255, (size, 32, 32, 3), dtype=np.uint8)
        write_pack(tmp_path / file, images, labels, {"split": split}, classes=classes)
    monkeypatch.setenv("ACCLIMATE_DATA", str(tmp_path))


def test_attribute_shift_follows_each_clients_labels(two_cifars):
    chosen = plan("attribute-shift", clients=5, alpha=0.5)
    domain = chosen.dataset.columns["domain"]
    for client, (train, _) in chosen.source.items():
        tests = {s.name: s.segments[0].rows for s in chosen.streams if s.client == client}
        assert set(domain[tests["original"]]) == {0}
        assert set(domain[tests["attribute"]]) == {1}
        common = np.argmax(histogram(chosen, train.rows))
        assert histogram(chosen, tests["attribute"])[common] >= 0.5 * histogram(chosen, tests["attribute"]).max()
    assert sum(len(s.segments[0].rows) for s in chosen.streams if s.name == "attribute") == 200


def test_remarks_stand_in_the_picture(two_cifars):
    people = SCENARIOS["upfl"].load()(data="cifar10", partition="dirichlet", clients=20, test_alpha=0.01).build(0)
    gone = 10 - len(people.streams)
    assert gone > 0
    assert f"cut to whole images: {gone} of 10 new clients" in picture(people)


def test_tgfl_with_natural_shift_mixes_it_half_and_half(two_cifars):
    chosen = plan("tgfl", clients=5, alpha=1.0, natural="cifar10.1")
    shifted = next(s for s in chosen.streams if s.name == "ind-shifted").segments[0]
    corrupted, natural = shifted.parts
    assert len(corrupted.rows) == len(natural.rows)
    assert set(chosen.dataset.columns["domain"][natural.rows]) == {1}
    assert set(chosen.dataset.columns["domain"][corrupted.rows]) == {0}
