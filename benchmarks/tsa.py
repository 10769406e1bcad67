"""TSA's server beside a plain transcription of the authors' code, and what many clients cost.

CPU seconds of one thread for one aggregation: N = 20 clients, T = 10 slots, 100 steps. The authors' own code took
0.72, 1.8 and 14.2 s on this kind of machine (D = 64, 256, 1024), measured once; the transcription below runs beside
ours and has no loops over clients or slots, so it is faster than theirs where D is small. The sweep shows time and
memory by the number of clients, whole, with `sample` and with `rows`, and how much of a row's weight these move.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from acclimate.aggregators.ts_block import Draws, TSBlock, draws_of, fit, graph
from acclimate.aggregators.tsa import TSA
from benchmarks.measure import GROWTH, MB, Grown, Line, interleave, peak_memory, ratio

AUTHORS = {64: 0.72, 256: 1.8, 1024: 14.2}  # CPU seconds, measured once
REQUIRED = {64: 5.0, 256: 3.0, 1024: 1.5}
SAMPLE, ROWS = 50, 100
GOLDEN = Path(__file__).resolve().parents[2] / "shared" / "golden" / "tsa" / "tsa_golden.npz"


def run(repeats: int = 5) -> list[Line]:
    torch.set_num_threads(1)
    check()
    lines = []
    for d in AUTHORS:
        x, steps = windows(20, d, 4), 100 if d < 1024 else 20

        def ours(x: Tensor = x, steps: int = steps) -> None:
            fit(TSBlock(x), draws_of("bernoulli", x[:, -1]), epochs=steps)

        def theirs(x: Tensor = x, steps: int = steps) -> None:
            plain(x, draws_of("bernoulli", x[:, -1]), steps)

        ours(x, 2), theirs(x, 2)
        seconds = interleave({"plain": theirs, "ours": ours}, repeats, clock=time.process_time)
        lines.append(ratio(f"TSA, D = {d}: a plain transcription / ours", seconds["plain"], seconds["ours"], None))
        whole = [s * 100 / steps for s in seconds["ours"]]
        what = f"TSA, D = {d}: the authors' {AUTHORS[d]} s / ours"
        lines.append(ratio(what, [AUTHORS[d]] * len(whole), whole, REQUIRED[d]))
    return [*lines, *sweep(), *cost_of_sample(), *cost_of_rows()]


def windows(n: int, d: int, groups: int, t: int = 10) -> Tensor:
    """Signatures of groups that meet one shift each, and the next one in mid-window."""
    rng = torch.Generator().manual_seed(0)
    shifts = torch.randn(groups + 3, d, generator=rng).abs()
    group = torch.arange(n) * groups // n
    x = torch.stack([shifts[group + (slot >= t // 2)] for slot in range(t)], 1)
    return 0.3 * (x + 0.3 * torch.randn(n, t, d, generator=rng)).clamp(min=0)


class Weights(NamedTuple):
    """Linear maps of one attention, as the authors have them."""

    q: Tensor
    k: Tensor
    v: Tensor  # stays the identity
    q_bias: Tensor
    k_bias: Tensor


def plain(x: Tensor, draws: Draws | None, steps: int) -> Tensor:
    """The authors' training with autograd: three passes, each with projections of its own; returns W."""
    d = x.shape[2]
    eye, zero = torch.eye(d, dtype=x.dtype), torch.zeros(d, dtype=x.dtype)
    time_, space = (Weights(*(w.clone() for w in (eye, eye, eye, zero, zero))) for _ in range(2))
    trained = [w.requires_grad_() for of in (time_, space) for w in (of.q, of.k, of.q_bias, of.k_bias)]
    optimizer = torch.optim.Adam(trained, lr=1e-3)
    edges = graph(x[:, -1])
    for _ in range(steps):
        x_ta, a_t = _attention(x, time_, None)
        x_tsa, a_s = _attention(x_ta.transpose(0, 1), space, None)
        loss = F.mse_loss(x_tsa.transpose(0, 1), x)
        if draws is not None:
            augmented, _ = _attention(x, time_, draws.temporal(a_t.detach()))
            augmented, _ = _attention(augmented.transpose(0, 1), space, draws.spatial(a_s.detach()))
            loss = loss + F.mse_loss(x_tsa, augmented)
            _attention(x_ta.transpose(0, 1), space, edges)  # computed by the authors, and not used
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    x_ta, _ = _attention(x, time_, None)
    return _attention(x_ta.transpose(0, 1), space, None)[1][-1].detach()


def _attention(x: Tensor, w: Weights, stay: Tensor | None) -> tuple[Tensor, Tensor]:
    q, k, v = F.linear(x, w.q, w.q_bias), F.linear(x, w.k, w.k_bias), F.linear(x, w.v)
    scores = q @ k.mT / math.sqrt(x.shape[2])
    attention = (scores if stay is None else scores.masked_fill(~stay, -math.inf)).softmax(-1)
    return attention @ v, attention


def check() -> None:
    """The transcription gives the authors' matrices, and ours with the same random masks."""
    x = windows(6, 16, 2).double()
    seeded: list[Tensor] = []
    for weights in (lambda d: plain(x, d, 20), lambda d: fit(TSBlock(x, bias=True), d, epochs=20).w):
        torch.manual_seed(0)
        seeded.append(weights(draws_of("bernoulli", x[:, -1])))
    torch.testing.assert_close(seeded[0], seeded[1], rtol=0, atol=1e-9)
    if not GOLDEN.exists():
        print("TSA: golden vectors are not here; the transcription is only compared with ours")
        return
    golden = np.load(GOLDEN)
    x, m_t, m_s = (torch.from_numpy(golden[name]) for name in ("X", "M_tem", "M_spa"))
    masks = Draws(lambda a: m_t.bool(), lambda a: m_s.bool())
    for name, draws in (("W_reg_bias_k5", None), ("W_fixmask_neginf_k5", masks)):
        torch.testing.assert_close(plain(x, draws, 5), torch.from_numpy(golden[name]), rtol=0, atol=1e-9)


def sweep(counts: Sequence[int] = (20, 100, 500, 1000)) -> list[Line]:
    """Time and memory of one aggregation by the number of clients, each in a process of its own (D = 256)."""
    lines = []
    for n in counts:
        for option in ("", f"sample: {SAMPLE}", f"rows: {ROWS}") if n > ROWS else ("",):
            command = [sys.executable, "-m", "benchmarks.tsa", str(n), option]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            what = f"TSA, D = 256, {n} clients" + (f", {option}" if option else "")
            seconds, memory = found["seconds"], found["bytes"] / MB
            GROWTH.append(Grown("TSA, one aggregation: seconds", option or "all clients", n, seconds))
            goal = ("<= 5", seconds <= 5) if (n, option) == (1000, f"rows: {ROWS}") else ("-", None)
            lines.append(Line(f"{what}: CPU seconds", seconds, seconds, seconds, *goal))
            lines.append(Line(f"{what}: peak MB of it", memory, memory, memory, "-"))
    return lines


def one(n: int, option: str) -> None:
    """What `sweep` runs: with all clients a few steps, scaled to 100."""
    torch.set_num_threads(1)
    x = windows(n, 256, 4)
    TSA(epochs=1)._weights(x[:10], None)
    epochs = 100 if option else max(2, 400 // n)
    given = {name: int(value) for name, _, value in [option.partition(": ")] if value}
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before, start = peak_memory(os.getpid()), time.process_time()
    TSA(epochs=epochs, **given)._weights(x, None)
    seconds = (time.process_time() - start) * 100 / epochs
    print(json.dumps({"seconds": seconds, "bytes": peak_memory(os.getpid()) - before}))


def cost_of_sample(n: int = 200) -> list[Line]:
    """Share of a row's weight that lies elsewhere than with all clients, or with fewer epochs."""
    lines = []
    for groups in (4, 15):
        x = windows(n, 256, groups)
        full = _seeded(TSA(), x)
        others = {"other draws": _seeded(TSA(), x, 2)}
        others[f"sample: {SAMPLE}"] = _seeded(TSA(sample=SAMPLE), x)
        others[f"rows: {ROWS}"] = _seeded(TSA(rows=ROWS), x)
        others["epochs: 25"] = _seeded(TSA(epochs=25), x)
        for name, w in others.items():
            moved = (w - full).abs().sum(1) / 2
            what = f"TSA, {n} clients in {groups} groups, {name}: weight moved"
            lines.append(Line(what, float(moved.mean()), float(moved.min()), float(moved.max()), "-"))
    return lines


def cost_of_rows(n: int = 1000, seeds: Sequence[int] = (1, 2, 3)) -> list[Line]:
    """The same of `rows` with many clients: over all rows and several draws."""
    lines = []
    for groups in (4, 15):
        x = windows(n, 256, groups)
        full = _seeded(TSA(), x)
        moved = [float((_seeded(TSA(rows=ROWS), x, seed) - full).abs().sum(1).mean() / 2) for seed in seeds]
        what, mean = f"TSA, {n} clients in {groups} groups, rows: {ROWS}: weight moved", sum(moved) / len(moved)
        lines.append(Line(what, mean, min(moved), max(moved), "<= 0.02", mean <= 0.02))
    return lines


def _seeded(aggregator: TSA, x: Tensor, seed: int = 1) -> Tensor:
    torch.manual_seed(seed)
    return aggregator._weights(x, None)[0]


if __name__ == "__main__":
    if len(sys.argv) == 3:
        one(int(sys.argv[1]), sys.argv[2])
    else:
        for line in run():
            print(line)
