"""The published protocols on real data: their counts are the specification's. Skipped by name without the data."""

from pathlib import Path

import numpy as np
import pytest
import torch

import toys
from acclimate.data import sources
from acclimate.data.image_shifts import Rotation
from acclimate.data.packs import write_pack
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
    assert {len(s.segments[0].rows) for s in chosen.streams} == {157}


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


def test_tgfl_with_natural_shift_mixes_it_half_and_half(two_cifars):
    chosen = plan("tgfl", clients=5, alpha=1.0, natural="cifar10.1")
    shifted = next(s for s in chosen.streams if s.name == "ind-shifted").segments[0]
    corrupted, natural = shifted.parts
    assert len(corrupted.rows) == len(natural.rows)
    assert set(chosen.dataset.columns["domain"][natural.rows]) == {1}
    assert set(chosen.dataset.columns["domain"][corrupted.rows]) == {0}
