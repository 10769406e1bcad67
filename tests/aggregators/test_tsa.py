import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

import toys
from acclimate import trees
from acclimate.aggregators import ts_block, ts_rows
from acclimate.aggregators.ts_bank import Bank, Seen
from acclimate.aggregators.ts_block import Draws, TSBlock
from acclimate.aggregators.ts_rows import by_kind, fit_rows, one_of_each
from acclimate.aggregators.tsa import TSA
from acclimate.contracts import Upload

GOLDEN = "tsa/tsa_golden.npz"


def arrays(*names):
    found = toys.golden(GOLDEN)
    return [torch.from_numpy(found[name]) for name in names]


def fixed(hadamard=False):
    temporal, spatial = (mask.bool() for mask in arrays("M_tem", "M_spa"))
    return Draws(lambda a: temporal, lambda a: spatial, hadamard)


def loss_of(made, x, lam, loss):
    return ts_block.objective(made.x_tsa, x, lam, loss)[0]


def upload(client, signature, slot=0, **tensors):
    shared = {name.replace("__", "."): tensor for name, tensor in tensors.items()} or {"w": torch.tensor(float(client))}
    return Upload(client, slot, shared, torch.as_tensor(signature), 1.0)


def matrix(aggregator, signatures, slots=1):
    """W after some slots with the same signatures."""
    state = aggregator.init([])
    for slot in range(slots):
        mix = aggregator.mix(state, [upload(i, p, slot) for i, p in enumerate(signatures)], slot)
        state = mix.state
    return mix.figures["weights"]


# By hand.


def test_tsa_without_steps_is_the_softmax_of_the_scores():
    """D = 1, one slot, p = 1 and 3: scores p_i p_j are (1, 3) and (3, 9); W₀₁ = e³ / (e + e³), W₁₁ = e⁹ / (e³ + e⁹)."""
    w = matrix(TSA(ablation="ts-sim"), [[1.0], [3.0]])
    assert w[0, 1].item() == pytest.approx(1 / (1 + math.exp(-2)), abs=1e-7)
    assert w[1, 1].item() == pytest.approx(1 / (1 + math.exp(-6)), abs=1e-7)


def test_tsa_first_step_moves_queries_and_keys_by_the_rate():
    """D = 1, one slot, p = −1 and 1, λ = 0.

    Scores are ± q k, so W_ii = a = σ(2 q k), X^TSA_0 = 1 − 2 a and the loss is (2 − 2 a)², falling in q and in k.
    Adam's first step has the size of the rate: q = k = 1.1 and a = σ(2 · 1.21).
    """
    w = matrix(TSA(lam=0.0, lr=0.1, epochs=1), [[-1.0], [1.0]])
    a = 1 / (1 + math.exp(-2.42))
    assert w.flatten().tolist() == pytest.approx([a, 1 - a, 1 - a, a], abs=1e-6)


def test_tsa_mixes_uploads_by_its_matrix():
    mix = TSA(epochs=3).mix(TSA().init([]), [upload(0, [1.0, 0.0]), upload(1, [0.0, 2.0])], 0)
    w = mix.figures["weights"]
    assert [d["w"].item() for d in mix.downloads] == pytest.approx(w[:, 1].tolist(), abs=1e-6)


def test_tsa_total_variance_adds_what_lies_between_clients():
    """Means 0 and 2, variances 1 and 3, W = ½: 2 + ½ (1 + 1) = 3."""
    some = [
        upload(0, [1.0], bn__running_mean=torch.tensor([0.0]), bn__running_var=torch.tensor([1.0])),
        upload(1, [1.0], bn__running_mean=torch.tensor([2.0]), bn__running_var=torch.tensor([3.0])),
    ]
    for total, variance in ((False, 2.0), (True, 3.0)):
        aggregator = TSA(epochs=0, total_variance=total)
        for download in aggregator.mix(aggregator.init([]), some, 0).downloads:
            assert download["bn.running_mean"].item() == pytest.approx(1.0)
            assert download["bn.running_var"].item() == pytest.approx(variance)


# Golden vectors: the authors' code, run in float64.


def test_tsa_forward_agrees_with_the_authors():
    (x,) = arrays("X")
    model = TSBlock(x)
    made = model.attend(model.inputs(), model.identity())
    toys.assert_same(made.a_t, arrays("A_T")[0])
    toys.assert_same(made.x_ta[..., :16], arrays("X_TA")[0])
    toys.assert_same(made.a_s, arrays("A_S")[0])
    toys.assert_same(made.a_s[-1], arrays("W0")[0])
    toys.assert_same(made.x_tsa.transpose(0, 1), arrays("X_TSA")[0])
    for loss, name in (("mse", "loss_reg_mse"), ("norm", "loss_reg_frob")):
        assert loss_of(made, x, 1.0, loss) == pytest.approx(arrays(name)[0].item(), abs=1e-9)


@pytest.mark.parametrize("kind", ["neginf", "hadamard"])
def test_tsa_masked_pass_agrees_with_the_authors(kind):
    x, augmented = arrays("X", f"X_TSA_aug_{kind}")
    model = TSBlock(x)
    made = model.attend(model.inputs(), model.identity(), fixed(kind == "hadamard"))
    toys.assert_same(made.x_tsa[10:].transpose(0, 1), augmented)
    regular, robust = arrays("loss_reg_mse", f"loss_robust_mse_{kind}")
    assert loss_of(made, x, 0.5, "mse") == pytest.approx((regular + robust / 2).item(), abs=1e-9)
    if kind == "neginf":
        (total,) = arrays("loss_total_paper_frob_lambda1_neginf")
        assert loss_of(made, x, 1.0, "norm") == pytest.approx(total.item(), abs=1e-9)


RUNS = {
    "reg_bias": {"bias": True},
    "reg_nobias": {},
    "fixmask_neginf": {"bias": True, "masked": "neginf"},
    "fixmask_hadamard": {"bias": True, "masked": "hadamard"},
    "frob_fixmask_neginf_nobias": {"masked": "neginf", "loss": "norm"},
}


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("run", RUNS)
def test_tsa_training_agrees_with_the_authors(run, steps):
    options = {"bias": False, "masked": None, "loss": "mse", **RUNS[run]}
    x, w = arrays("X", f"W_{run}_k{steps}")
    draws = fixed(options["masked"] == "hadamard") if options["masked"] else None
    fit = ts_block.fit(TSBlock(x, bias=options["bias"]), draws, epochs=steps, loss=options["loss"])
    toys.assert_same(fit.w, w)
    if not options["masked"]:
        names = [f"P_{run}_k{steps}_{name}_weight" for name in ("TA1_fc_q", "TA1_fc_k", "SA1_geo_q", "SA1_geo_k")]
        toys.assert_same(fit.block[:16], torch.cat([weight.T for weight in arrays(*names)], 1))


@pytest.mark.parametrize("run", RUNS)
def test_tsa_losses_agree_with_the_authors(run):
    options = {"bias": False, "masked": None, "loss": "mse", **RUNS[run]}
    x, losses = arrays("X", f"loss_{run}_hist")
    model = TSBlock(x, bias=options["bias"])
    draws = fixed(options["masked"] == "hadamard") if options["masked"] else None
    for steps in {0, 1, 5, 20, 100} & set(range(len(losses))):
        block = ts_block.fit(model, draws, epochs=steps, loss=options["loss"]).block
        made = model.attend(model.inputs(), block, draws)
        assert loss_of(made, x, 1.0, options["loss"]) == pytest.approx(losses[steps].item(), abs=1e-9)


@pytest.mark.parametrize("epochs", [1, 5])
def test_tsa_of_the_best_epoch_agrees_with_the_authors(epochs):
    x, w = arrays("X", f"W_ref_ST_attention_reg_E{epochs}")
    aggregator = TSA(lam=0.0, bias=True, pick="best", epochs=epochs)
    toys.assert_same(stream(aggregator, x)[-1], w)


def stream(aggregator, x):
    state, found = aggregator.init([]), []
    for slot in range(x.shape[1]):
        mix = aggregator.mix(state, [upload(i, p, slot) for i, p in enumerate(x[:, slot])], slot)
        state = trees.load(trees.dump(mix.state))
        found.append(mix.figures["weights"])
    return found


def test_tsa_ablations_agree_with_the_authors():
    x, windows, without_time, similarity = arrays("X", "W_stream_T10", "W0_wotime", "att_sim")
    toys.assert_same(torch.stack(stream(TSA(ablation="ts-sim"), x)), windows)
    toys.assert_same(stream(TSA(ablation="no-time", epochs=0), x)[-1], without_time)
    toys.assert_same(stream(TSA(ablation="s-sim"), x)[-1], similarity)
    model = TSBlock(x, time=False)
    made = model.attend(model.inputs(), model.identity())
    toys.assert_same(made.x_tsa.transpose(0, 1), arrays("X_SA_wotime")[0])


def test_tsa_graph_agrees_with_the_authors():
    x, edges = arrays("X", "graph_cur")
    assert torch.equal(ts_block.graph(x[:, -1]).int(), edges)


@pytest.mark.parametrize("layer", ["l0", "l1"])
@pytest.mark.parametrize("total", [False, True])
def test_tsa_mixes_statistics_as_the_authors(layer, total):
    names = ("mean_in", "var_in", "mean_agg", "var_agg_total" if total else "var_agg")
    means, variances, mean, variance = arrays(*(f"bn_{name}_{layer}" for name in names))
    (x,) = arrays("X")
    some = [upload(i, x[i, -1], 9, bn__running_mean=means[i], bn__running_var=variances[i]) for i in range(len(x))]
    before = torch.arange(9)
    bank = Bank(before, {i: Seen(before, x[i, :9]) for i in range(len(x))})
    downloads = TSA(bias=True, lam=0.0, total_variance=total).mix(bank, some, 9).downloads
    toys.assert_same(torch.stack([download["bn.running_mean"] for download in downloads]), mean)
    toys.assert_same(torch.stack([download["bn.running_var"] for download in downloads]), variance)


# The gradient written by hand.


def random_draws(kind, x):
    """Masks that stay the same in every pass."""
    torch.manual_seed(3)
    n, t, _ = x.shape
    temporal, spatial = torch.rand(n, t, t) < 0.6, torch.rand(t, n, n) < 0.6
    for stay in (temporal, spatial):
        stay.diagonal(dim1=-2, dim2=-1).fill_(True)
    return Draws(lambda a: temporal, lambda a: spatial, kind == "hadamard") if kind != "none" else None


@pytest.mark.parametrize("kind", ["none", "neginf", "hadamard"])
@pytest.mark.parametrize("loss", ["mse", "norm"])
@pytest.mark.parametrize("time", [True, False])
def test_tsa_gradient_equals_autograd(kind, loss, time):
    torch.manual_seed(0)
    x = torch.randn(4, 3, 5, dtype=torch.float64)
    model, draws = TSBlock(x, bias=True, time=time), random_draws(kind, x)
    block = (model.identity() + 0.1 * torch.randn(6, 20, dtype=torch.float64)).requires_grad_()
    measure = F.mse_loss if loss == "mse" else (lambda a, b: torch.linalg.vector_norm(a - b))
    out = model.attend(model.inputs(), block, draws).x_tsa
    expected = measure(out[:3], x.transpose(0, 1)) + (0.7 * measure(out[:3], out[3:]) if draws else 0.0)
    expected.backward()
    with torch.no_grad():
        made = model.attend(model.inputs(), block, draws)
        value, g = ts_block.objective(made.x_tsa, x, 0.7, loss)
        torch.testing.assert_close(model.gradient(model.inputs(), made, g), block.grad, rtol=1e-9, atol=1e-12)
    assert value == pytest.approx(expected.item(), abs=1e-12)


# Limits.

OPTIONS = [
    {"masks": masks, "loss": loss, "pick": pick}
    for masks in ("bernoulli", "fixed-percent", "hadamard")
    for loss in ("mse", "norm")
    for pick in ("last", "best")
]
EVERY = [*OPTIONS, *({"ablation": name} for name in ("s-sim", "ts-sim", "no-time", "no-aug")), {"warm_start": True}]


@pytest.mark.parametrize("options", EVERY, ids=str)
@pytest.mark.parametrize("slots", [1, 3])
def test_tsa_of_one_client_is_the_identity(options, slots):
    assert matrix(TSA(epochs=2, **options), [[1.0, 2.0]], slots).tolist() == [[1.0]]


@pytest.mark.parametrize("options", EVERY, ids=str)
@pytest.mark.parametrize("slots", [1, 3])
def test_tsa_of_equal_clients_is_uniform(options, slots):
    for value in (0.0, 1.0):
        w = matrix(TSA(epochs=2, **options), [[value, 2 * value]] * 3, slots)
        torch.testing.assert_close(w, torch.full((3, 3), 1 / 3, dtype=torch.float64))


@pytest.mark.parametrize("options", EVERY, ids=str)
def test_tsa_matrix_is_row_stochastic_whatever_the_options(options):
    torch.manual_seed(1)
    w = matrix(TSA(epochs=3, bias=True, **options), torch.randn(5, 4), 3)
    assert (w >= 0).all()
    torch.testing.assert_close(w.sum(1), torch.ones(5, dtype=torch.float64))


def test_tsa_training_finds_the_groups():
    """Two groups of two, told apart by their signatures: weights gather inside."""
    torch.manual_seed(0)
    signatures = torch.randn(2, 16).repeat_interleave(2, 0) + 0.1 * torch.randn(4, 16)
    inside = torch.block_diag(torch.ones(2, 2), torch.ones(2, 2)).bool()
    before, after = matrix(TSA(epochs=0), signatures, 5), matrix(TSA(lr=1e-2), signatures, 5)
    assert after[inside].sum() > before[inside].sum()
    assert after[inside].sum() / 4 > 0.95


def test_tsa_without_augmentation_is_lambda_zero():
    torch.manual_seed(0)
    p = torch.randn(3, 4)
    assert torch.equal(matrix(TSA(epochs=5, ablation="no-aug"), p, 2), matrix(TSA(epochs=5, lam=0.0), p, 2))


def test_tsa_warm_start_goes_on_with_its_block():
    """Two slots of two steps each, with Adam begun anew, differ from one block begun anew."""
    p = [[1.0, 0.0], [0.5, 1.0]]
    warm, cold = TSA(epochs=2, lam=0.0, warm_start=True), TSA(epochs=2, lam=0.0)
    assert torch.equal(matrix(warm, p, 1), matrix(cold, p, 1))
    assert not torch.equal(matrix(warm, p, 2), matrix(cold, p, 2))
    assert cold.mix(cold.init([]), [upload(0, [1.0])], 0).state.block is None


def test_tsa_trained_on_a_sample_weighs_all_clients():
    torch.manual_seed(0)
    signatures = torch.randn(2, 16).repeat_interleave(6, 0) + 0.1 * torch.randn(12, 16)
    inside = torch.block_diag(torch.ones(6, 6), torch.ones(6, 6)).bool()
    w = matrix(TSA(lr=1e-2, sample=6), signatures, 3)
    assert w.shape == (12, 12)
    assert w[inside].sum() / 12 > 0.95
    torch.testing.assert_close(w.sum(1), torch.ones(12, dtype=torch.float64))


def test_tsa_with_a_sample_of_everybody_trains_as_ever():
    p = torch.tensor([[1.0, 0.0], [0.5, 1.0]])
    sampled, plain = TSA(epochs=3, lam=0.0, sample=2), TSA(epochs=3, lam=0.0)
    assert torch.equal(matrix(sampled, p), matrix(plain, p))


@pytest.mark.parametrize("time", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_tsa_on_all_rows_of_two_slots_is_the_whole_fit(time, bias):
    """Both slots and everybody's rows are the whole loss; the random masks are left out."""
    torch.manual_seed(0)
    model = TSBlock(torch.randn(5, 2, 6, dtype=torch.float64), bias=bias, time=time)
    some = fit_rows(model, 5, block=None, lr=1e-2, epochs=10, lam=0.0)
    torch.testing.assert_close(some.w, ts_block.fit(model, None, lr=1e-2, epochs=10).w, rtol=0, atol=1e-9)


def test_tsa_trained_on_some_rows_at_a_time_finds_the_groups_as_the_whole_fit_does():
    torch.manual_seed(0)
    signatures = torch.randn(2, 16).repeat_interleave(6, 0) + 0.1 * torch.randn(12, 16)
    inside = torch.block_diag(torch.ones(6, 6), torch.ones(6, 6)).bool()
    w, whole = (matrix(TSA(lr=1e-2, rows=rows), signatures, 3) for rows in (6, None))
    assert w[inside].sum() / 12 == pytest.approx(float(whole[inside].sum() / 12), abs=0.02)
    assert w[inside].sum() / 12 > 0.8  # half of it would be no better than chance
    torch.testing.assert_close(w.sum(1), torch.ones(12, dtype=torch.float64))


def test_tsa_of_some_rows_computes_what_a_mask_leaves_as_the_whole_masked_softmax_does():
    torch.manual_seed(0)
    x_ta, spatial, chosen = torch.randn(9, 4).double(), torch.randn(4, 4).double(), torch.tensor([7, 0, 3])
    scores = x_ta[chosen] @ spatial @ x_ta.T
    torch.manual_seed(1)
    stay = ts_rows._drawn(scores.softmax(-1), chosen)
    torch.manual_seed(1)
    found = ts_rows._masked(scores.softmax(-1), x_ta, chosen, spatial)
    assert 3 < stay.sum() < stay.numel()  # some keys besides their own, and not all of them
    whole = scores.masked_fill(~stay, -torch.inf).softmax(-1) @ x_ta
    torch.testing.assert_close(found, whole, rtol=0, atol=1e-12)


def test_tsa_of_some_rows_takes_clients_of_every_kind():
    torch.manual_seed(0)
    kind = torch.arange(60) % 6
    order = by_kind(3 * torch.randn(6, 16)[kind] + 0.01 * torch.randn(60, 16))
    assert order.sort().values.tolist() == list(range(60))
    assert len(kind[order].unique_consecutive()) == 6  # one kind after the other
    chosen = one_of_each(order, 6)
    assert sorted(kind[chosen].tolist()) == list(range(6))
    assert not torch.equal(chosen, one_of_each(order, 6))  # others every time
    assert torch.equal(one_of_each(order, 60), order)


@pytest.mark.parametrize("masks", ["fixed-percent", "hadamard"])
def test_tsa_refuses_rows_where_whole_rows_are_looked_at(masks):
    with pytest.raises(ValueError, match="rows: goes with masks: bernoulli, loss: mse"):
        TSA(rows=5, masks=masks)


def test_tsa_keeps_the_last_slots_only():
    aggregator = TSA(window=2, epochs=0)
    state = aggregator.init([])
    for slot in range(5):
        state = aggregator.mix(state, [upload(0, [float(slot)], slot), upload(1, [1.0], slot)], slot).state
    assert state.slots.tolist() == [3, 4]
    assert state.seen[0].slots.tolist() == [3, 4]
    assert state.seen[0].p.flatten().tolist() == [3.0, 4.0]


def test_tsa_carries_the_last_signature_over_missed_slots():
    """A client that missed slot 1 counts there as in slot 0; one that came in slot 2 counts before as then."""
    aggregator = TSA(ablation="ts-sim")
    state = aggregator.mix(aggregator.init([]), [upload(0, [1.0]), upload(1, [2.0])], 0).state
    state = aggregator.mix(state, [upload(1, [3.0], 1)], 1).state
    missed = aggregator.mix(state, [upload(i, [p], 2) for i, p in enumerate((4.0, 5.0, 6.0))], 2).figures["weights"]
    x = torch.tensor([[[1.0], [1.0], [4.0]], [[2.0], [3.0], [5.0]], [[6.0], [6.0], [6.0]]])
    torch.testing.assert_close(missed, ts_block.fit(TSBlock(x), None, epochs=0).w)


def test_tsa_without_uploads_keeps_its_memory():
    aggregator = TSA(epochs=0)
    state = aggregator.mix(aggregator.init([]), [upload(0, [1.0])], 0).state
    assert trees.equal(aggregator.mix(state, [], 1).state, state)


def test_tsa_without_signatures_says_so():
    with pytest.raises(ValueError, match="needs a signature"):
        TSA().mix(TSA().init([]), [toys.upload(1.0)], 0)


# Masks.


def test_tsa_bernoulli_masks_follow_the_attention():
    torch.manual_seed(0)
    stay = ts_block.bernoulli(torch.full((1000, 3, 3), 0.25))
    assert stay.diagonal(dim1=1, dim2=2).all()
    assert stay[:, 0, 1].float().mean().item() == pytest.approx(0.25, abs=0.05)


def test_tsa_fixed_percent_drops_the_authors_shares():
    """4 slots: 12 of 16 places go, at most 4 of them on the diagonal, which comes back.

    5 clients in a pair and a triple: 8 edges, of which ⌊6.4⌋ go, and 12 others, of which ⌊2.4⌋ come.
    """
    torch.manual_seed(0)
    times = ts_block.drop_times(torch.rand(50, 4, 4).softmax(2))
    assert times.diagonal(dim1=1, dim2=2).all()
    assert set(times.flatten(1).sum(1).tolist()) <= {4, 5, 6, 7, 8}
    edges = torch.block_diag(torch.ones(2, 2), torch.ones(3, 3)).bool()
    stay = ts_block.change_edges(torch.rand(1, 5, 5).softmax(2), edges)
    own = torch.eye(5, dtype=torch.bool)
    assert stay[own].all()
    assert (stay & edges & ~own).sum() == 2
    assert (stay & ~edges).sum() == 2


@pytest.mark.parametrize("edges", [torch.ones(3, 3), torch.eye(3), torch.zeros(3, 3)])
def test_tsa_fixed_percent_survives_full_and_empty_graphs(edges):
    stay = partial(ts_block.change_edges, edges=edges.bool())(torch.full((2, 3, 3), 1 / 3))
    assert stay.diagonal().all()


# Beyond the paper: clients that are absent or late.


def test_tsa_old_uploads_weigh_less_and_get_no_download():
    """Equal signatures weigh ½ each; an upload two slots old at γ = ½ counts a quarter of a new one: ⅘ and ⅕."""
    aggregator = TSA(epochs=0, stale=0.5)
    state = aggregator.mix(aggregator.init([]), [upload(0, [1.0], 3), upload(1, [1.0], 3)], 3).state
    mix = aggregator.mix(state, [upload(0, [1.0], 5), upload(1, [1.0], 3)], 5)
    assert mix.figures["weights"].flatten().tolist() == pytest.approx([0.8, 0.2], abs=1e-12)
    assert (mix.figures["clients"].tolist(), mix.figures["columns"].tolist()) == ([0], [0, 1])
    assert [download["w"].item() for download in mix.downloads] == pytest.approx([0.2])


@pytest.mark.parametrize(("stale", "weight"), [(0.0, 0.0), (1.0, 0.5)])
def test_tsa_old_uploads_may_count_not_at_all_or_as_new(stale, weight):
    aggregator = TSA(epochs=0, stale=stale)
    mix = aggregator.mix(aggregator.init([]), [upload(0, [1.0], 5), upload(1, [1.0], 3)], 5)
    assert mix.figures["weights"][0, 1].item() == pytest.approx(weight)


def test_tsa_late_upload_takes_its_place_in_time():
    """Sent in slot 1 and here in slot 2: as if it had been there, but for the weight."""
    aggregator = TSA(ablation="ts-sim", stale=1.0)
    state = aggregator.mix(aggregator.init([]), [upload(0, [1.0]), upload(1, [2.0])], 0).state
    state = aggregator.mix(state, [upload(0, [3.0], 1), upload(1, [2.0], 0)], 1).state
    mix = aggregator.mix(state, [upload(0, [5.0], 2), upload(1, [4.0], 1)], 2)
    x = torch.tensor([[[1.0], [3.0], [5.0]], [[2.0], [4.0], [4.0]]])
    torch.testing.assert_close(mix.figures["weights"], ts_block.fit(TSBlock(x), None, epochs=0).w[:1])
    assert mix.state.seen[1].slots.tolist() == [0, 1]


def test_tsa_with_nobody_there_remembers_and_waits():
    aggregator = TSA(epochs=0)
    mix = aggregator.mix(aggregator.init([]), [upload(1, [4.0], 1)], 2)
    assert mix.downloads == []
    assert mix.state.seen[1].p.tolist() == [[4.0]]
    assert mix.state.slots.tolist() == []
